#include "page.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "../kernels/error.h"
#include "arms.h"
#include "chart.h"
#include "curve.h"
#include "escape.h"
#include "page_tables.h"

namespace clover {
namespace {

// report/page.js and report/page.css, as the Makefile turns them into literals.
const char* const script =
#include "page.js.inc"
    ;
const char* const style =
#include "page.css.inc"
    ;

/// How a chart's y axis is chosen: by the reader's switch, or always one way.
enum class Scale { free, linear, logarithmic };

struct PageChart {
    std::string section, title, unit, series;
    Scale scale = Scale::linear;
    bool smooth = false;   // follows the slider
    bool profile = false;  // x is the layer: the last values of series.layer.0, series.layer.1, …
    bool wide = false;
};

/// The charts that are always in the same place, then those of sets and classes by name, then every other series.
std::vector<PageChart> charts_of(const std::vector<RunData>& runs) {
    std::vector<PageChart> charts = {{"Loss", "Training loss", "nats per token", "loss", Scale::free, true, false, true},
                                     {"Validation", "All sets", "bits per byte", "valid.bits_per_byte", Scale::free}};
    const std::vector<std::string> sets = names_between(runs, "valid.", ".bits_per_byte");
    if (sets.size() > 1)
        for (const std::string& set : sets) charts.push_back({"Validation", set, "bits per byte", "valid." + set + ".bits_per_byte", Scale::free});
    else charts[1].title = "Validation", charts[1].wide = true;
    charts.push_back({"Optimization and speed", "Learning rate", "", "lr", Scale::free});
    charts.push_back({"Optimization and speed", "Gradient norm", "before clipping", "grad_norm", Scale::free, true});
    charts.push_back({"Optimization and speed", "Throughput", "tokens per second", "tokens_per_s", Scale::linear, true});
    charts.push_back({"Optimization and speed", "Loss scale", "", "loss_scale", Scale::logarithmic});
    charts.push_back({"Optimization and speed", "Skipped steps", "", "skipped", Scale::linear});
    const struct {
        const char *series, *title, *unit;
        Scale scale;
    } mechanisms[] = {{"stale", "Stale fraction", "share unchanged by a step", Scale::linear}, {"update", "Update-to-weight ratio", "‖Δw‖ / ‖w‖", Scale::logarithmic}};
    for (const auto& m : mechanisms) {
        const std::string start = text(m.series, ".");
        for (const std::string& name : names_between(runs, start, ""))
            if (name.find('.') == std::string::npos) charts.push_back({m.title, text(m.title, ": ", name), m.unit, start + name, m.scale});
        if (!names_between(runs, start + "layer.", "").empty())
            charts.push_back({m.title, text(m.title, " by layer, last"), m.unit, m.series, m.scale, false, true});
    }
    return charts;
}

bool has_points(const std::vector<RunData>& runs, const PageChart& chart) {
    return std::any_of(runs.begin(), runs.end(), [&](const RunData& r) { return !r.points(chart.series + (chart.profile ? ".layer.0" : "")).empty(); });
}

std::vector<PageChart> all_charts(const std::vector<RunData>& runs) {
    std::vector<PageChart> charts = charts_of(runs);
    std::erase_if(charts, [&](const PageChart& c) { return !has_points(runs, c); });
    std::set<std::string> others;
    for (const RunData& run : runs)
        for (const auto& [name, points] : run.series) others.insert(name);
    for (const PageChart& c : charts) others.erase(c.series);
    for (const std::string& name : others) charts.push_back({"Every other series", name, "", name, name.starts_with("update.") ? Scale::logarithmic : Scale::free, name == "bits_per_byte"});
    return charts;
}

std::string json_number(double value) {
    char digits[64];
    std::snprintf(digits, sizeof digits, "%.6g", value);
    return std::isfinite(value) ? digits : "null";
}

std::string json_numbers(const Points& points, bool steps) {
    std::string list = "[";
    for (const Point& p : points) {
        if (list.size() > 1) list += ',';
        list += steps ? std::to_string(p.step) : json_number(p.value);
    }
    return list + "]";
}

/// {"s": steps, "v": values} and, where points were left out, {"ms", "mv"}: what smoothing works on.
std::string json_series(const Points& points, int64_t most, bool& thinner) {
    const Points kept = thinned(points, most);
    std::string json = "{\"s\":" + json_numbers(kept, true) + ",\"v\":" + json_numbers(kept, false);
    if (kept.size() < points.size()) {
        const Points means = stretch_means(points, most / 2);
        json += ",\"ms\":" + json_numbers(means, true) + ",\"mv\":" + json_numbers(means, false);
        thinner = true;
    }
    return json + "}";
}

std::string json_run(const RunData& run, size_t arm, int line_style, int64_t most, bool& thinner) {
    std::string json = text("{\"name\":", script_string(run.name), ",\"arm\":", arm, ",\"style\":\"", line_classes(line_style), "\",\"spikes\":[");
    for (const RunData::Spike& s : run.spikes)
        json += text(json.back() == '[' ? "" : ",", "{\"step\":", s.step, ",\"series\":", script_string(s.series), ",\"value\":", json_number(s.value), "}");
    json += "],\"series\":{";
    for (const auto& [name, points] : run.series) json += text(json.back() == '{' ? "" : ",", "\n", script_string(name), ":", json_series(points, most, thinner));
    return json + "}}";
}

std::string json_chart(const PageChart& c) {
    return text("{\"title\":", script_string(c.title), ",\"unit\":", script_string(c.unit), ",\"series\":", script_string(c.series), ",\"scale\":\"",
                c.scale == Scale::free ? "free" : c.scale == Scale::linear ? "linear" : "log", "\",\"smooth\":", c.smooth ? "true" : "false", ",\"profile\":", c.profile ? "true" : "false", "}");
}

int64_t points_of_curves(const std::vector<RunData>& runs, const PageOptions& o) {
    size_t curves = 0;
    for (const RunData& run : runs) curves += run.series.size();
    return std::clamp(o.points_in_all / int64_t(std::max<size_t>(curves, 1)), std::min<int64_t>(200, o.points_per_curve), o.points_per_curve);
}

/// What page.js draws. A run's colour is its arm's, where there are several arms.
std::string json_data(const std::vector<RunData>& runs, const std::vector<Arm>& arms, const std::vector<PageChart>& charts, int64_t most, bool& thinner) {
    std::vector<size_t> arm_of(runs.size());
    std::string names, list, all;
    for (size_t a = 0; a < arms.size(); a++) {
        names += text(a ? "," : "", script_string(arms[a].name));
        for (const size_t i : arms[a].runs) arm_of[i] = a;
    }
    for (size_t i = 0; i < runs.size(); i++) list += text(i ? ",\n" : "", json_run(runs[i], arm_of[i], int(arms.size() > 1 ? arm_of[i] : i), most, thinner));
    for (const PageChart& c : charts) all += text(all.empty() ? "" : ",\n", json_chart(c));
    return text("{\"arms\":[", names, "],\n\"charts\":[", all, "],\n\"runs\":[", list, "]}");
}

std::string slider(const char* id, const char* label, const char* most) {
    return text("<label>", label, " <input type=\"range\" id=\"", id, "\" min=\"0\" max=\"", most, "\" step=\"0.01\" value=\"0\"><output for=\"", id, "\">0</output></label>\n");
}
std::string box(const char* id, const char* label) { return text("<label><input type=\"checkbox\" id=\"", id, "\"> ", label, "</label>\n"); }

std::string controls(const std::vector<RunData>& runs, const std::vector<Arm>& arms) {
    return "<div class=\"controls\" role=\"group\" aria-label=\"how curves are drawn\">\n" + slider("smooth", "smoothing", "0.99") + slider("from", "from", "0.95") + box("log", "log y") + box("logx", "log x") +
           (arms.size() < runs.size() ? box("band", "seeds as bands") : "") + "</div>\n<div class=\"legend\" id=\"legend\" aria-label=\"runs\"></div>\n";
}

/// Charts of one section stand together; the last section is folded.
std::string figures(const std::vector<PageChart>& charts) {
    std::string html, section;
    const auto close = [&] { html += section.empty() ? "" : section == charts.back().section && section == "Every other series" ? "</div></details>\n" : "</div></section>\n"; };
    for (size_t i = 0; i < charts.size(); i++) {
        const PageChart& c = charts[i];
        if (c.section != section) {
            close();
            section = c.section;
            const bool folded = section == "Every other series";
            html += folded ? "<details><summary>" + section + "</summary><div class=\"charts\">\n" : "<section><h2>" + section + "</h2><div class=\"charts\">\n";
        }
        html += text("<figure data-chart=\"", i, "\" data-series=\"", escape_xml(c.series), "\"", c.wide ? " class=\"big\"" : "", "><figcaption><b>", escape_xml(c.title), "</b> <span>", escape_xml(c.unit),
                     "</span></figcaption></figure>\n");
    }
    close();
    return html;
}

/// For readers without script: the one curve that matters most.
std::string still_picture(const std::vector<RunData>& runs) {
    Chart chart;
    chart.title = "Training loss", chart.y_label = "nats per token";
    for (const RunData& run : runs) chart.curves.push_back(curve_of(run.name, run.points("loss"), 0.9));
    return "<noscript>" + to_svg(chart) + "</noscript>\n";
}

std::string introduction(const std::vector<RunData>& runs) {
    std::string said;
    for (const RunData& run : runs) said += (said.empty() ? "<p>" : ", ") + ("<code>" + escape_xml(run.folder) + "</code>") + (run.series.empty() ? " (no step yet)" : "");
    return runs.size() <= 6 ? said + "\n" : folded(text(runs.size(), " runs"), said);
}

}  // namespace

std::string to_page(const std::vector<RunData>& runs, const PageOptions& o) {
    CLOVER_CHECK(!runs.empty());
    const std::vector<Arm> arms = arms_of(runs);
    const std::vector<PageChart> charts = all_charts(runs);
    const int64_t most = points_of_curves(runs, o);
    bool thinner = false;
    const std::string data = json_data(runs, arms, charts, most, thinner), differences = differences_table(runs, arms);

    std::string html = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + escape_xml(o.title) + "</title>\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        "<style>" + line_style_sheet() + "\n" + style + "</style></head>\n<body><header><h1>" + escape_xml(o.title) + "</h1>\n" + introduction(runs) + "</header>\n<main>\n";
    for (const Verdict& v : o.verdicts) html += to_html(v);
    html += "<section id=\"final\"><h2>Final values</h2>\n" + final_values_table(runs, arms) + "</section>\n";
    if (runs.size() > 1)
        html += "<section id=\"differences\"><h2>Where the configs differ</h2>\n" + (differences.empty() ? "<p>Nowhere.</p>\n" : differences) + "</section>\n";
    html += controls(runs, arms) + still_picture(runs) + figures(charts);
    if (std::any_of(runs.begin(), runs.end(), [](const RunData& r) { return !r.spikes.empty(); })) html += folded("Spikes", spikes_table(runs));
    html += folded("The last value of every series", last_values_table(runs));
    html += folded(runs.size() == 1 ? "The config" : "What the configs share", shared_config_table(runs));
    html += "</main>\n<footer><p>";
    if (thinner)
        html += text("Curves of more than ", most, " points show, of each stretch of steps, the smallest and the largest value as they were logged; smoothed curves go through the means of ", most / 2,
                     " stretches. ");
    html += "Every number as logged: <code>./clover report RUN… --csv FILE</code>.</p></footer>\n";
    return html + "<script type=\"application/json\" id=\"data\">" + data + "</script>\n<script>" + script + "</script></body></html>\n";
}

}  // namespace clover
