// Draws the curves of the report from the JSON in #data, and the switches above them. No text reaches the page but as text.
//   data.runs[i]    {name, arm, style, spikes: [{step, series, value}], series: {NAME: {s: steps, v: values, ms, mv: means of stretches, where thinned}}}
//   data.charts[i]  {title, unit, series, scale: free|linear|log, smooth, profile}, drawn into figure[data-chart=i]
// The state of the switches is the page's fragment: #log&logx&band&smooth=0.9&from=0.1&hide=0,2&at=300 (at: every chart shows its values at that step).
'use strict';
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const figures = [...document.querySelectorAll('figure[data-chart]')];
const boxes = ['log', 'logx', 'band'], sliders = ['smooth', 'from'];
// The legend has an entry for each arm, or, where all runs are one arm, for each run.
const entries = data.arms.length > 1 ? data.arms.map((name, arm) => ({name, runs: [...data.runs.keys()].filter(i => data.runs[i].arm === arm)}))
                                     : data.runs.map((run, i) => ({name: run.name, runs: [i]}));
const state = {log: false, logx: false, band: false, smooth: 0, from: 0, hide: new Set(), at: null};

// ---- elements

function element(parent, name, attributes, text) {
  const svg = name === 'svg' || parent instanceof SVGElement;
  const e = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
}

function figure_text(v, digits) {
  if (v === null || !isFinite(v)) return 'not finite';
  const a = Math.abs(v);
  return a !== 0 && (a < 1e-4 || a >= 1e15) ? v.toExponential(Math.min(digits, 4) - 1) : String(+v.toPrecision(digits));
}

function tick_text(v) {
  const a = Math.abs(v);
  for (const [unit, name] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']])
    if (a >= unit * (unit === 1e3 ? 10 : 1) && a < 1e12) return +(v / unit).toPrecision(4) + name;
  return a !== 0 && (a < 1e-3 || a >= 1e12) ? v.toExponential().replace(/(\.\d\d)\d+/, '$1') : String(+v.toPrecision(4));
}

// ---- series

// As smoothed() in curve.h: what lies a thousandth of the range before has the influence `weight`.
function smoothed(steps, values, weight) {
  const range = steps[steps.length - 1] - steps[0];
  let sum = 0, weights = 0;
  return values.map((v, i) => {
    const before = Math.max(0, i - 1), keep = weight ** ((steps[before + 1] - steps[before]) / range * 1000);
    if (v === null) {
      sum = weights = 0;
      return null;
    }
    sum = sum * keep + v * (1 - keep);
    weights = weights * keep + (1 - keep);
    return sum / weights;
  });
}

// The lines of one chart: {name, style, x, y, raw (thin and pale), low, high, run}.
function run_lines(chart) {
  const lines = [];
  data.runs.forEach((run, index) => {
    if (state.hide.has(index)) return;
    const line = {name: run.name, style: run.style, run: index};
    if (chart.profile) {
      line.x = [], line.y = [];
      for (let i = 0, s; (s = run.series[chart.series + '.layer.' + i]); i++) line.x.push(i), line.y.push(s.v[s.v.length - 1]);
      if (line.x.length) lines.push(line);
      return;
    }
    const s = run.series[chart.series];
    if (!s) return;
    if (chart.smooth && state.smooth > 0 && s.s.length > 2) {
      if (data.runs.length - state.hide.size <= 8 && !state.band) lines.push({...line, x: s.s, y: s.v, raw: true});
      lines.push({...line, x: s.ms || s.s, y: smoothed(s.ms || s.s, s.mv || s.v, state.smooth), of: s});
    } else {
      lines.push({...line, x: s.s, y: s.v});
    }
  });
  return lines;
}

function value_at(line, x) {
  const i = nearest(line.x, x);
  const j = line.x[i] <= x ? Math.min(i + 1, line.x.length - 1) : Math.max(i - 1, 0);
  if (i === j || line.y[i] === null || line.y[j] === null) return line.y[i];
  return line.y[i] + (line.y[j] - line.y[i]) * (x - line.x[i]) / (line.x[j] - line.x[i]);
}

// Runs that differ in their seed become one line: their mean, and a band from the smallest to the largest, as far as all of them go.
function banded(lines) {
  return data.arms.map((name, arm) => {
    const seeds = lines.filter(l => !l.raw && data.runs[l.run].arm === arm);
    if (seeds.length < 2) return seeds[0];
    const end = Math.min(...seeds.map(l => l.x[l.x.length - 1]));
    const x = [...new Set(seeds.flatMap(l => l.x))].filter(v => v <= end).sort((a, b) => a - b);
    const band = {name: name + ' (' + seeds.length + ')', style: seeds[0].style, x, y: [], low: [], high: []};
    for (const v of x) {
      const values = seeds.map(l => value_at(l, v)), whole = values.every(w => w !== null);
      band.y.push(whole ? values.reduce((a, b) => a + b) / values.length : null);
      band.low.push(whole ? Math.min(...values) : null);
      band.high.push(whole ? Math.max(...values) : null);
    }
    return band;
  }).filter(l => l);
}

// Index of the value next to x in an ascending list.
function nearest(list, x) {
  let low = 0, high = list.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] <= x) low = middle;
    else high = middle;
  }
  return Math.abs(list[high] - x) < Math.abs(list[low] - x) ? high : low;
}

// ---- axes

function linear_ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * (rough / power > 5.01 ? 10 : rough / power > 2.01 ? 5 : rough / power > 1.01 ? 2 : 1);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && ticks.length < 100; k++) ticks.push(k * step);
  return ticks;
}

function log_ticks(low, high, count) {
  const decades = Math.log10(high / low);
  if (decades < 1) return linear_ticks(low, high, count);
  const stride = Math.max(1, Math.ceil(decades / count)), within = decades < 2 ? [1, 2, 5] : decades <= count / 2 ? [1, 3] : [1];
  const ticks = [];
  for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++)
    for (const m of within) if (k % stride === 0 && m * 10 ** k >= low && m * 10 ** k <= high) ticks.push(m * 10 ** k);
  return ticks;
}

function make_axis(values, log, from, to, margin) {
  let low = Infinity, high = -Infinity;
  const holds = v => v !== null && isFinite(v) && (!log || v > 0);
  for (const v of values) if (holds(v)) low = Math.min(low, v), high = Math.max(high, v);
  if (low > high) low = log ? 1 : 0, high = log ? 10 : 1;
  const wider = low === high;
  if (log) {
    const factor = wider ? 1.1 : (high / low) ** margin;
    low /= factor, high *= factor;
  } else {
    const more = wider ? Math.max(Math.abs(low) * 0.1, 1e-12) : (high - low) * margin;
    low -= more, high += more;
  }
  const share = log ? v => Math.log(v / low) / Math.log(high / low) : v => (v - low) / (high - low);
  return {
    holds,
    place: v => from + share(v) * (to - from),
    value: p => log ? low * (high / low) ** ((p - from) / (to - from)) : low + (p - from) / (to - from) * (high - low),
    ticks: count => log ? log_ticks(low, high, count) : linear_ticks(low, high, count),
  };
}

// ---- charts

function path_of(line, x, y) {
  let d = '', down = false;
  line.x.forEach((step, i) => {
    const drawn = x.holds(step) && y.holds(line.y[i]);
    if (drawn) d += (down ? 'L' : 'M') + x.place(step).toFixed(1) + ' ' + y.place(line.y[i]).toFixed(1);
    down = drawn;
  });
  return d;
}

function band_path(line, x, y) {
  let d = '', back = '';
  line.x.forEach((step, i) => {
    if (!x.holds(step) || !y.holds(line.low[i]) || !y.holds(line.high[i])) {
      d += back && back + 'Z', back = '';
      return;
    }
    const at = x.place(step).toFixed(1) + ' ';
    d += (back ? 'L' : 'M') + at + y.place(line.high[i]).toFixed(1);
    back = 'L' + at + y.place(line.low[i]).toFixed(1) + back;
  });
  return d + (back && back + 'Z');
}

// Without the steps before `from`, a share of the longest run.
function cut(line, first) {
  const begin = line.x.findIndex(x => x >= first);
  if (begin <= 0) return begin === 0 ? line : {...line, x: [], y: [], ...(line.low && {low: [], high: []})};
  const rest = {...line, x: line.x.slice(begin), y: line.y.slice(begin)};
  if (line.low) rest.low = line.low.slice(begin), rest.high = line.high.slice(begin);
  return rest;
}

function draw_axes(svg, x, y, box) {
  for (const v of y.ticks(box.height < 300 ? 5 : 7)) {
    const at = y.place(v).toFixed(1);
    element(svg, 'path', {class: 'grid', d: `M${box.left} ${at}H${box.right}`});
    element(svg, 'text', {x: box.left - 5, y: +at + 4, 'text-anchor': 'end'}, tick_text(v));
  }
  for (const v of x.ticks(Math.max(2, Math.floor(box.width / 85)))) {
    const at = x.place(v).toFixed(1);
    element(svg, 'path', {class: 'axis', d: `M${at} ${box.bottom}v4`});
    element(svg, 'text', {x: at, y: box.bottom + 16, 'text-anchor': 'middle'}, tick_text(v));
  }
  element(svg, 'path', {class: 'axis', d: `M${box.left} ${box.bottom}H${box.right}`});
}

function draw_spikes(svg, chart, lines, x, y, first) {
  data.runs.forEach((run, index) => {
    if (state.hide.has(index)) return;
    for (const s of run.spikes) {
      if (s.series !== chart.series || s.step < first || !x.holds(s.step)) continue;
      const top = y.holds(s.value) ? Math.max(12, y.place(s.value)) : 12;
      const mark = element(svg, 'path', {class: 'spike f ' + run.style, d: `M${x.place(s.step).toFixed(1)} ${(top - 3).toFixed(1)}l-4 -8h8Z`});
      element(mark, 'title', {}, `${run.name}: spike at step ${s.step}, ${figure_text(s.value, 5)}`);
    }
  });
}

function draw(figure) {
  const chart = data.charts[figure.dataset.chart];
  const width = Math.max(260, figure.clientWidth - 8), height = figure.classList.contains('big') ? Math.min(430, Math.max(260, width * 0.6)) : 230;
  const box = {left: 52, right: width - 12, bottom: height - 24, width, height};
  let lines = run_lines(chart);
  if (state.band) lines = banded(lines);
  const end = lines.reduce((most, l) => Math.max(most, l.x[l.x.length - 1]), 0), first = chart.profile ? 0 : state.from * end;
  lines = lines.map(l => cut(l, first));
  const log = chart.scale === 'log' || (chart.scale === 'free' && state.log), logx = state.logx && !chart.profile;
  const x = make_axis(lines.flatMap(l => l.x), logx, box.left, box.right, 0.01);
  const y = make_axis(lines.flatMap(l => l.low ? l.y.concat(l.low, l.high) : l.y), log, box.bottom, 14, 0.04);
  figure.querySelectorAll('svg,.hover').forEach(e => e.remove());
  const svg = element(figure, 'svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': chart.title, 'data-y': log ? 'log' : 'linear', 'data-x': logx ? 'log' : 'linear'});
  draw_axes(svg, x, y, box);
  for (const l of lines) {
    if (l.low) element(svg, 'path', {class: 'f d ' + l.style, d: band_path(l, x, y)});
    const d = path_of(l, x, y), dot = l.x.length === 1 && d;
    element(svg, 'path', {class: 'l ' + (l.raw ? 'raw ' : '') + l.style, d: dot ? d + 'h0' : d, ...(dot && {'stroke-linecap': 'round', style: 'stroke-width: 7px'}), 'data-run': l.name});
  }
  draw_spikes(svg, chart, lines, x, y, first);
  figure.drawn = {chart, lines: lines.filter(l => !l.raw && l.x.length), x, y, box, svg};
  if (state.at !== null && !chart.profile) show_values(figure, state.at, null);
}

// ---- values at a step: under the pointer, or, where the fragment asks for a step, below the chart

function value_text(line, i) {
  if (line.low) return line.low[i] === line.high[i] ? figure_text(line.y[i], 5) : `${figure_text(line.y[i], 5)} (${figure_text(line.low[i], 5)} to ${figure_text(line.high[i], 5)})`;
  if (!line.of) return figure_text(line.y[i], 6);
  const raw = nearest(line.of.s, line.x[i]);
  return `${figure_text(line.y[i], 5)} smoothed, ${figure_text(line.of.v[raw], 6)} at ${line.of.s[raw]}`;
}

function hide_values(figure) {
  figure.querySelectorAll('.hover,.at').forEach(e => e.remove());
}

function show_values(figure, step, pointer_y) {
  const {chart, lines, x, y, box, svg} = figure.drawn;
  hide_values(figure);
  if (!lines.length) return;
  const pinned = pointer_y === null, most = pinned ? 50 : 12;
  let shown = lines.map(l => ({l, i: nearest(l.x, step)}));
  const at = shown.reduce((best, c) => Math.abs(c.l.x[c.i] - step) < Math.abs(best - step) ? c.l.x[c.i] : best, Infinity);
  const distance = c => y.holds(c.l.y[c.i]) ? Math.abs(y.place(c.l.y[c.i]) - pointer_y) : Infinity;
  const left_out = Math.max(0, shown.length - most);
  if (left_out && !pinned) shown.sort((a, b) => distance(a) - distance(b));
  shown = shown.slice(0, most).sort((a, b) => (b.l.y[b.i] ?? Infinity) - (a.l.y[a.i] ?? Infinity));
  const across = x.place(at);
  if (x.holds(at)) element(svg, 'path', {class: 'at', d: `M${across.toFixed(1)} 8V${box.bottom}`});
  const hover = element(figure, 'div', {class: pinned ? 'hover pinned' : 'hover'});
  element(hover, 'div', {}, (chart.profile ? 'layer ' : 'step ') + at);
  for (const {l, i} of shown) {
    const row = element(hover, 'div', {'data-run': l.name, 'data-step': l.x[i]});
    element(row, 'i', {class: l.style.split(' ')[0]});
    element(row, 'span', {}, l.name + (l.x[i] === at ? '' : `, ${chart.profile ? 'layer' : 'step'} ${l.x[i]}`));
    element(row, 'b', {}, value_text(l, i));
  }
  if (left_out) element(hover, 'div', {}, `and ${left_out} more`);
  if (pinned) return;
  const area = svg.getBoundingClientRect(), outer = figure.getBoundingClientRect(), place = across * area.width / box.width;
  const left = across > box.width / 2 ? place - hover.offsetWidth - 8 : place + 14;
  hover.style.top = area.top - outer.top + 10 + 'px';
  hover.style.left = Math.max(4, Math.min(left, outer.width - hover.offsetWidth - 8)) + 'px';
}

function follow_pointer(figure) {
  const move = event => {
    if (!figure.drawn || !event.target.closest('svg')) return;
    const area = figure.drawn.svg.getBoundingClientRect(), scale = figure.drawn.box.width / area.width;
    show_values(figure, figure.drawn.x.value((event.clientX - area.left) * scale), (event.clientY - area.top) * scale);
  };
  figure.addEventListener('pointermove', move);
  figure.addEventListener('pointerdown', move);
  figure.addEventListener('pointerleave', () => state.at === null || !figure.drawn || figure.drawn.chart.profile ? hide_values(figure) : show_values(figure, state.at, null));
}

// ---- switches

function read_fragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const id of boxes) state[id] = given.has(id);
  for (const id of sliders) state[id] = Math.min(Math.max(+given.get(id) || 0, 0), 0.999);
  state.hide = new Set((given.get('hide') || '').split(',').filter(s => s !== '').map(Number));
  state.at = given.has('at') && isFinite(given.get('at')) ? +given.get('at') : null;
}

function write_fragment() {
  const parts = boxes.filter(id => state[id]).concat(sliders.filter(id => state[id] > 0).map(id => `${id}=${state[id]}`));
  if (state.hide.size) parts.push('hide=' + [...state.hide].sort((a, b) => a - b).join(','));
  if (state.at !== null) parts.push('at=' + state.at);
  history.replaceState(null, '', '#' + parts.join('&'));
}

function show_state() {
  for (const id of boxes) if (document.getElementById(id)) document.getElementById(id).checked = state[id];
  for (const id of sliders) {
    document.getElementById(id).value = state[id];
    document.querySelector(`output[for=${id}]`).textContent = id === 'from' ? Math.round(state[id] * 100) + ' %' : state[id];
  }
  document.querySelectorAll('#legend button').forEach((b, i) => b.setAttribute('aria-pressed', entries[i].runs.some(run => !state.hide.has(run))));
}

// Charts in a folded part are drawn when it is opened.
function draw_all() {
  for (const figure of figures) if (!figure.closest('details:not([open])')) draw(figure);
}

let waiting = false;
function changed() {
  write_fragment();
  show_state();
  if (!waiting) requestAnimationFrame(() => (waiting = false, draw_all()));
  waiting = true;
}

function make_legend() {
  const legend = document.getElementById('legend');
  for (const {name, runs} of entries) {
    const button = element(legend, 'button', {type: 'button', title: 'show or hide'});
    const swatch = element(button, 'svg', {width: 26, height: 8});
    element(swatch, 'path', {class: 'l ' + data.runs[runs[0]].style, d: 'M1 4h24', 'stroke-width': 3});
    element(button, 'span', {}, name + (runs.length > 1 ? ` (${runs.length})` : ''));
    button.addEventListener('click', () => {
      const shown = runs.some(run => !state.hide.has(run));
      for (const run of runs) shown ? state.hide.add(run) : state.hide.delete(run);
      changed();
    });
  }
}

make_legend();
for (const id of boxes) document.getElementById(id)?.addEventListener('change', e => (state[id] = e.target.checked, changed()));
for (const id of sliders) document.getElementById(id).addEventListener('input', e => (state[id] = +e.target.value, changed()));
addEventListener('hashchange', () => (read_fragment(), show_state(), draw_all()));
document.querySelectorAll('details').forEach(d => d.addEventListener('toggle', draw_all));
let width = innerWidth;
addEventListener('resize', () => innerWidth !== width && (width = innerWidth, draw_all()));
figures.forEach(follow_pointer);
read_fragment();
show_state();
draw_all();
})();
