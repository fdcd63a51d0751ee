#include "page_tables.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "../kernels/error.h"
#include "escape.h"
#include "verdict.h"

namespace clover {
namespace {

std::string cell(const std::string& content, const std::string& attributes = "") { return "<td" + attributes + ">" + content; }
std::string head(const std::string& content) { return "<th>" + escape_xml(content); }
std::string table(const std::string& rows) { return "<div class=\"wide\"><table>\n" + rows + "</table></div>\n"; }

struct Column {
    std::string title, id;  // data-value of its cells
    std::function<double(const RunData&)> value;
};

double median(Points points) {
    if (points.empty()) return std::numeric_limits<double>::quiet_NaN();
    const auto middle = points.begin() + long(points.size() / 2);
    std::nth_element(points.begin(), middle, points.end(), [](const Point& a, const Point& b) { return a.value < b.value; });
    return middle->value;
}

double least(const Points& points) {
    double value = std::numeric_limits<double>::quiet_NaN();
    for (const Point& p : points)
        if (!(p.value >= value)) value = p.value;
    return value;
}

double sum(const Points& points) {
    double total = 0;
    for (const Point& p : points) total += p.value;
    return total;
}

bool any_has(const std::vector<RunData>& runs, const std::string& series) {
    return std::any_of(runs.begin(), runs.end(), [&](const RunData& run) { return !run.points(series).empty(); });
}

std::vector<Column> final_columns(const std::vector<RunData>& runs) {
    std::vector<Column> columns = {
        {"steps", "steps", [](const RunData& r) { return r.points("loss").empty() ? 0.0 : double(r.points("loss").back().step); }},
        {"training loss, last", "loss", [](const RunData& r) { return last_value(r.points("loss")); }},
        {"mean of the last 10 %", "loss10", [](const RunData& r) { return mean_of_last(r.points("loss"), 0.1); }}};
    if (any_has(runs, "valid.bits_per_byte")) {
        columns.push_back({"validation bits per byte, last", "valid.bits_per_byte", [](const RunData& r) { return last_value(r.points("valid.bits_per_byte")); }});
        columns.push_back({"best", "valid.best", [](const RunData& r) { return least(r.points("valid.bits_per_byte")); }});
    }
    const std::vector<std::string> sets = names_between(runs, "valid.", ".bits_per_byte");
    for (const std::string& set : sets)
        if (const std::string series = "valid." + set + ".bits_per_byte"; sets.size() > 1)
            columns.push_back({set, series, [series](const RunData& r) { return last_value(r.points(series)); }});
    if (any_has(runs, "tokens_per_s")) columns.push_back({"tokens per second, median", "tokens_per_s", [](const RunData& r) { return median(r.points("tokens_per_s")); }});
    if (std::any_of(runs.begin(), runs.end(), [](const RunData& r) { return !r.spikes.empty(); }))
        columns.push_back({"spikes", "spikes", [](const RunData& r) { return double(r.spikes.size()); }});
    if (any_has(runs, "skipped")) columns.push_back({"steps skipped", "skipped", [](const RunData& r) { return sum(r.points("skipped")); }});
    return columns;
}

std::string head_row(const std::string& first, const std::vector<Column>& columns) {
    std::string row = "<tr>" + head(first);
    for (const Column& c : columns) row += head(c.title);
    return row + "\n";
}

/// A run that has no such series shows a dash, one whose value is not finite says so.
std::string value_cell(const Column& column, const RunData& run) {
    const bool logged = !run.series.empty() && (column.id.rfind("valid.", 0) != 0 || !run.points(column.id == "valid.best" ? "valid.bits_per_byte" : column.id).empty());
    return cell(logged ? shown(column.value(run)) : "–", " data-value=\"" + escape_xml(column.id) + "\"");
}

const std::string* find_value(const RunData& run, const std::string& key) {
    const auto found = run.config.find(key);
    return found == run.config.end() ? nullptr : &found->second;
}

}  // namespace

std::string folded(const std::string& summary, const std::string& content) { return "<details><summary>" + summary + "</summary>\n" + content + "</details>\n"; }

std::vector<std::string> names_between(const std::vector<RunData>& runs, const std::string& start, const std::string& end) {
    std::set<std::string> found;
    for (const RunData& run : runs)
        for (auto s = run.series.lower_bound(start); s != run.series.end() && s->first.starts_with(start); ++s)
            if (s->first.size() > start.size() + end.size() && s->first.ends_with(end)) found.insert(s->first.substr(start.size(), s->first.size() - start.size() - end.size()));
    std::vector<std::string> names(found.begin(), found.end());
    const auto number = [](const std::string& s) { return s.find_first_not_of("0123456789") == std::string::npos && s.size() < 10 ? std::stol(s) : -1; };
    std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) { return number(a) < number(b); });
    return names;
}

std::string final_values_table(const std::vector<RunData>& runs, const std::vector<Arm>& arms) {
    const std::vector<Column> columns = final_columns(runs);
    std::string rows = head_row("run", columns);
    for (const RunData& run : runs) {
        rows += "<tr>" + head(run.name);
        for (const Column& c : columns) rows += value_cell(c, run);
        rows += "\n";
    }
    if (arms.size() == runs.size()) return table(rows);
    std::string spreads = head_row("mean ± standard deviation over seeds", columns);
    for (const Arm& arm : arms) {
        spreads += "<tr>" + head(arm.name + text(" (", arm.runs.size(), ")"));
        for (const Column& c : columns) {
            std::vector<double> values;
            for (const size_t i : arm.runs) values.push_back(c.value(runs[i]));
            spreads += cell(shown(spread_of(values)));
        }
        spreads += "\n";
    }
    return table(spreads) + folded(text("Each of the ", runs.size(), " runs"), table(rows));
}

std::string differences_table(const std::vector<RunData>& runs, const std::vector<Arm>& arms) {
    const std::vector<std::string> keys = differing_keys(runs);
    if (keys.empty()) return "";
    std::string rows = "<tr>" + head(arms.size() == runs.size() ? "run" : "runs");
    for (const std::string& key : keys) rows += head(key);
    for (const Arm& arm : arms) {
        rows += "\n<tr>" + head(arm.name);
        for (const std::string& key : keys) {
            std::string values;  // several where they are seeds
            for (const size_t i : arm.runs) {
                const std::string* value = find_value(runs[i], key);
                if (i == arm.runs[0] || key == "train.seed") values += (values.empty() ? "" : ", ") + (value ? *value : "–");
            }
            rows += cell(escape_xml(values), " class=\"code\"");
        }
    }
    return table(rows + "\n");
}

std::string shared_config_table(const std::vector<RunData>& runs) {
    const std::vector<std::string> differing = differing_keys(runs);
    std::string rows;
    for (const auto& [key, value] : runs[0].config)
        if (!std::binary_search(differing.begin(), differing.end(), key)) rows += "<tr>" + head(key) + cell(escape_xml(value), " class=\"code left\"") + "\n";
    return table(rows);
}

std::string spikes_table(const std::vector<RunData>& runs) {
    std::string rows = "<tr>" + head("run") + head("step") + head("series") + head("value") + head("mean ± sd before") + "\n";
    for (const RunData& run : runs)
        for (const RunData::Spike& s : run.spikes)
            rows += "<tr>" + head(run.name) + cell(std::to_string(s.step)) + cell(escape_xml(s.series)) + cell(shown(s.value)) + cell(shown(Spread{2, s.mean, s.sd})) + "\n";
    return table(rows);
}

std::string last_values_table(const std::vector<RunData>& runs) {
    std::set<std::string> series;
    for (const RunData& run : runs)
        for (const auto& [name, points] : run.series) series.insert(name);
    std::string rows = "<tr>" + head("series");
    for (const RunData& run : runs) rows += head(run.name);
    for (const std::string& name : series) {
        rows += "\n<tr>" + head(name);
        for (const RunData& run : runs) {
            const Points& points = run.points(name);
            rows += points.empty() ? cell("–") : cell(shown(points.back().value), text(" title=\"step ", points.back().step, "\""));
        }
    }
    return table(rows + "\n");
}

}  // namespace clover
