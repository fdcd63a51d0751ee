#include "judgement.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "../kernels/error.h"
#include "curve.h"
#include "escape.h"

namespace clover {
namespace {

constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

double median_of(const Points& points) {
    std::vector<double> values;
    for (const Point& p : points) values.push_back(p.value);
    if (values.empty()) return not_measured;
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double max_of(const Points& points) {
    double most = points.empty() ? not_measured : points[0].value;
    for (const Point& p : points) most = std::max(most, p.value);
    return most;
}

double json_value(const std::string& printed, const Metric& m) {
    const nlohmann::json all = nlohmann::json::parse(printed, nullptr, false);
    require(!all.is_discarded(), "[[command]] ", m.command, ": did not print JSON");
    // Below a null nothing was measured (a length that the model cannot take, say); elsewhere it is a mistake.
    nlohmann::json::json_pointer at(m.at);
    while (!all.contains(at) && !at.empty()) at = at.parent_pointer();
    const nlohmann::json& value = all.at(at);
    require(value.is_null() || at.to_string() == m.at, "metric ", m.name, ": what [[command]] ", m.command, " printed has nothing at ", m.at);
    return value.is_number() ? value.get<double>() : not_measured;
}

const MeasuredRun* find_run(const std::vector<MeasuredRun>& runs, const std::string& arm, int64_t seed) {
    for (const MeasuredRun& r : runs)
        if (r.arm == arm && r.seed == seed) return &r;
    return nullptr;
}

double value_of(const std::vector<MeasureTerm>& measure, const std::vector<MeasuredRun>& runs, int64_t seed) {
    const auto quantity = [&](const Quantity& q) {
        const MeasuredRun* run = find_run(runs, q.arm, seed);
        return run && run->metrics.count(q.metric) ? run->metrics.at(q.metric) : not_measured;
    };
    double sum = 0;
    for (const MeasureTerm& term : measure) {
        double value = quantity(term.factors[0]);
        for (size_t i = 1; i < term.factors.size(); i++) value /= quantity(term.factors[i]);
        sum += term.sign * value;
    }
    return sum;
}

bool is_for(const ExperimentCheck& c, const ExperimentVariant& v) {
    return c.variants.empty() || std::find(c.variants.begin(), c.variants.end(), v.name) != c.variants.end();
}

/// False for NaN.
bool holds(const ExperimentCheck& c, const std::vector<double>& per_seed) {
    const auto fits = [&](double x) { return x > c.above && x < c.below; };
    if (c.each) return !per_seed.empty() && std::all_of(per_seed.begin(), per_seed.end(), fits);
    return fits(spread_of(per_seed).mean);
}

/// At the steps that both have; `a` and `b` ascend.
Points difference(const Points& a, const Points& b) {
    Points points;
    for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        if (a[i].step == b[j].step) points.push_back({a[i].step, a[i].value - b[j].value}), i++, j++;
        else if (a[i].step < b[j].step) i++;
        else j++;
    }
    return points;
}

std::vector<double> values_of(const std::vector<MeasuredRun>& runs, const std::string& arm, const std::string& metric) {
    std::vector<double> values;
    for (const MeasuredRun& r : runs)
        if (r.arm == arm && r.metrics.count(metric) && !std::isnan(r.metrics.at(metric))) values.push_back(r.metrics.at(metric));
    return values;
}

Curve curve_over_metrics(const ExperimentChart& c, const ExperimentArm& arm, const std::vector<MeasuredRun>& runs) {
    Curve curve;
    for (size_t i = 0; i < c.metrics.size(); i++) {
        const std::vector<double> values = values_of(runs, arm.name, c.metrics[i]);
        if (values.empty()) continue;
        curve.x.push_back(c.x[i]), curve.y.push_back(spread_of(values).mean);
        curve.low.push_back(*std::min_element(values.begin(), values.end())), curve.high.push_back(*std::max_element(values.begin(), values.end()));
    }
    curve.points = true;
    return curve;
}

Curve curve_over_steps(const ExperimentChart& c, const ExperimentArm& arm, const std::vector<MeasuredRun>& runs) {
    std::vector<Points> differences;
    std::vector<const Points*> seeds;
    differences.reserve(runs.size());
    for (const MeasuredRun& r : runs) {
        if (r.arm != arm.name || r.data.points(c.series).empty()) continue;
        const MeasuredRun* base = c.minus.empty() ? nullptr : find_run(runs, c.minus, r.seed);
        if (c.minus.empty()) seeds.push_back(&r.data.points(c.series));
        else if (base) differences.push_back(difference(r.data.points(c.series), base->data.points(c.series))), seeds.push_back(&differences.back());
    }
    return seeds.empty() ? Curve{} : curve_over_seeds("", seeds, c.smooth);
}

std::string csv_number(double x) { return std::isnan(x) ? "nan" : nlohmann::json(x).dump() == "null" ? "inf" : nlohmann::json(x).dump(); }

}  // namespace

double metric_of(const Metric& m, const MeasuredRun& run, const std::function<std::string(const std::string&)>& printed) {
    const Points& points = run.data.points(m.series);
    switch (m.take) {
        case Take::mean: return run.diverged ? not_measured : mean_of_last(points, m.fraction);
        case Take::last: return run.diverged ? not_measured : last_value(points);
        case Take::median: return median_of(points);
        case Take::max: return max_of(points);
        case Take::diverged: return run.diverged || !(mean_of_last(points, m.fraction) <= m.limit) ? 1 : 0;
        case Take::json: return run.diverged ? not_measured : json_value(printed(m.command), m);
    }
    throw Error("unknown metric");
}

std::vector<VerdictCheck> judge(const Experiment& e, const ExperimentVariant& v, const std::vector<MeasuredRun>& runs, const std::vector<int64_t>& seeds) {
    std::vector<VerdictCheck> checks;
    for (const ExperimentCheck& c : e.checks) {
        if (!is_for(c, v)) continue;
        VerdictCheck check{c.claim, c.written, {}, c.limit};
        for (const int64_t seed : seeds) check.per_seed.push_back(value_of(c.measure, runs, seed));
        check.holds = holds(c, check.per_seed);
        checks.push_back(check);
    }
    return checks;
}

Reproduced outcome_of(const Experiment& e, const ExperimentVariant& v, const std::vector<VerdictCheck>& checks) {
    size_t next = 0, said = 0, held = 0;
    for (const ExperimentCheck& c : e.checks) {
        if (!is_for(c, v)) continue;
        const bool held_here = checks[next++].holds;
        if (c.finding) said++, held += held_here;
    }
    return said == 0 ? Reproduced::not_judged : held == said ? Reproduced::yes : held == 0 ? Reproduced::no : Reproduced::partly;
}

std::vector<VerdictRow> rows_of(const Experiment& e, const ExperimentVariant& v, const std::vector<MeasuredRun>& runs) {
    std::vector<VerdictRow> rows;
    for (const ExperimentArm* arm : arms_of(e, v)) {
        VerdictRow row{arm->label, {}};
        for (const Metric& m : e.metrics) row.values.push_back(spread_of(values_of(runs, arm->name, m.name)));
        rows.push_back(row);
    }
    return rows;
}

std::vector<Chart> charts_of(const Experiment& e, const ExperimentVariant& v, const std::vector<MeasuredRun>& runs) {
    std::vector<Chart> charts;
    for (const ExperimentChart& c : e.charts) {
        Chart chart;
        chart.title = c.title, chart.log_y = c.log;
        if (!c.x_label.empty()) chart.x_label = c.x_label;
        const std::vector<const ExperimentArm*> arms = arms_of(e, v);
        for (size_t i = 0; i < arms.size(); i++) {
            if (arms[i]->name == c.minus) continue;
            Curve curve = c.metrics.empty() ? curve_over_steps(c, *arms[i], runs) : curve_over_metrics(c, *arms[i], runs);
            curve.name = arms[i]->label, curve.style = int(i);
            if (!curve.x.empty()) chart.curves.push_back(curve);
        }
        if (!chart.curves.empty()) charts.push_back(chart);
    }
    return charts;
}

std::string results_csv(const Experiment& e, const ExperimentVariant& v, const std::vector<MeasuredRun>& runs) {
    std::string csv = "variant,arm,seed";
    for (const Metric& m : e.metrics) csv += text(",", csv_field(m.name));
    csv += ",not_finite,wall_seconds\n";
    for (const MeasuredRun& r : runs) {
        csv += text(v.name, ",", r.arm, ",", r.seed);
        for (const Metric& m : e.metrics) csv += text(",", csv_number(r.metrics.count(m.name) ? r.metrics.at(m.name) : not_measured));
        csv += text(",", r.diverged ? 1 : 0, ",", r.seconds, "\n");
    }
    return csv;
}

std::string checks_csv(const ExperimentVariant& v, const std::vector<VerdictCheck>& checks, const std::vector<int64_t>& seeds) {
    std::string csv = "variant,claim,measure,limit,mean,sd";
    for (const int64_t s : seeds) csv += text(",seed", s);
    csv += ",holds\n";
    for (const VerdictCheck& c : checks) {
        const Spread spread = spread_of(c.per_seed);
        csv += text(v.name, ",", csv_field(c.claim), ",", csv_field(c.metric), ",", csv_field(c.limit), ",", csv_number(spread.mean), ",", csv_number(spread.sd));
        for (const double x : c.per_seed) csv += text(",", csv_number(x));
        csv += text(",", c.holds ? "yes" : "no", "\n");
    }
    return csv;
}

}  // namespace clover
