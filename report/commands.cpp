#include "commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "../data/new_file.h"
#include "../kernels/error.h"
#include "chart.h"
#include "csv.h"
#include "page.h"

namespace clover {
namespace {

struct ReportOptions {
    std::vector<std::string> folders, series = {"loss"};
    std::string out = "report.html", csv, svg;
    double smooth = 0;
    bool log = false;
};

const char* const footer =
    "A series is named after where it stands in log.jsonl: loss, grad_norm, lr, tokens_per_s, valid.bits_per_byte, valid.SET.bits_per_byte, stale.matrices, stale.layer.0, …;\n"
    "the page shows every one, and the CSV has every value. The page's switches are its address: report.html#log&smooth=0.9&from=0.1&at=300";

/// A chart for each series that is asked for, a line for each run that has it.
std::vector<Chart> charts_of(const std::vector<RunData>& runs, const ReportOptions& o) {
    std::vector<Chart> charts;
    for (const std::string& series : o.series) {
        Chart chart;
        chart.title = series, chart.log_y = o.log;
        for (size_t i = 0; i < runs.size(); i++) {
            if (runs[i].points(series).empty()) continue;
            Curve curve = curve_of(runs[i].name, runs[i].points(series), o.smooth);
            curve.style = int(i);
            for (const RunData::Spike& s : runs[i].spikes) {
                const size_t at = size_t(std::lower_bound(curve.x.begin(), curve.x.end(), double(s.step)) - curve.x.begin());
                if (s.series == series && at < curve.x.size()) chart.marks.push_back({double(s.step), o.smooth > 0 ? curve.y[at] : s.value, text("step ", s.step), int(i)});
            }
            chart.curves.push_back(std::move(curve));
        }
        std::string known;
        for (const auto& [name, points] : runs[0].series) known += (known.empty() ? "" : ", ") + name;
        require(!chart.curves.empty(), "--series ", series, ": no run has it; ", runs[0].folder, " has ", known.empty() ? "none yet" : known);
        charts.push_back(std::move(chart));
    }
    return charts;
}

int report(const ReportOptions& o) {
    const std::vector<RunData> runs = read_runs(o.folders);
    const std::vector<Chart> charts = o.svg.empty() ? std::vector<Chart>{} : charts_of(runs, o);
    write_file_whole(o.out, to_page(runs));
    if (!o.csv.empty()) write_csv(runs, o.csv);
    if (!o.svg.empty()) write_file_whole(o.svg, to_svg(charts));
    std::printf("%s: %zu run%s\n", o.out.c_str(), runs.size(), runs.size() == 1 ? "" : "s");
    return 0;
}

}  // namespace

DataCommand add_report_command(CLI::App& app) {
    const auto o = std::make_shared<ReportOptions>();
    CLI::App* c = app.add_subcommand("report", "one HTML page with the curves of runs, side by side; also CSV and SVG");
    c->add_option("RUN", o->folders, "folders of runs: --out of ./clover train; also of runs that are still going on")->required();
    c->add_option("--out", o->out, "the page to write: one file that needs nothing else")->capture_default_str();
    c->add_option("--csv", o->csv, "write every value of every series: run,series,step,value");
    c->add_option("--svg", o->svg, "write a picture of --series, for Markdown");
    c->add_option("--series", o->series, "what the SVG shows; may be repeated, one chart below the other")->allow_extra_args(false)->capture_default_str();
    c->add_option("--smooth", o->smooth, "smoothing in the SVG: how much a point a thousandth of the run away still counts, below 1")->capture_default_str()->check(CLI::Range(0.0, 0.999));
    c->add_flag("--log", o->log, "a logarithmic axis in the SVG");
    c->footer(footer);
    return {"report", [o] { return report(*o); }};
}

}  // namespace clover
