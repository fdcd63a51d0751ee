#include "ablation.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "../data/new_file.h"
#include "../data/text_source.h"
#include "../model/run_log.h"
#include "ablation_runner.h"
#include "judgement.h"
#include "page.h"

namespace clover {
namespace {

volatile sig_atomic_t stop_requested = 0;  // a signal handler can reach nothing else
void request_stop(int signal_number) {
    stop_requested = 1;
    signal(signal_number, SIG_DFL);  // a second one ends this process at once, and the runs with it
}

int64_t cores() { return std::max<int64_t>(1, std::thread::hardware_concurrency()); }

/// The CPU's name as Linux tells it.
std::string machine() {
    std::ifstream in("/proc/cpuinfo");
    std::string name = "an unknown CPU";
    for (std::string line; std::getline(in, line);)
        if (line.rfind("model name", 0) == 0) {
            name = line.substr(line.find(':') + 2);
            break;
        }
    return text(name, ", ", cores(), " cores");
}

std::string today() {
    char date[20];
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    std::strftime(date, sizeof date, "%Y-%m-%d", localtime_r(&now, &local));
    return date;
}

struct Plan {
    const AblationOptions& options;
    const Experiment& experiment;
    const ExperimentVariant& variant;
    std::string out;  // of the variant
    RunnerOptions runner;
    std::vector<ExperimentRun> runs;
};

std::string command_of(const Plan& p) {
    std::string command = "./clover ablation " + p.options.folder;
    if (!p.variant.name.empty()) command += " --variant " + p.variant.name;
    return command + (p.options.quick ? " --quick" : "");
}

/// In several sittings the time is put together from the runs'.
std::string wall_time(const Plan& p, const RunnerReport& report) {
    double of_runs = 0;
    for (const RunOutcome& o : report.outcomes) of_runs += o.seconds;
    const std::string how = text(" (", p.runs.size(), " runs, ", p.runner.jobs, " at a time, ", p.runner.threads, p.runner.threads == 1 ? " thread" : " threads", " each)");
    if (report.one_sitting) return format_seconds(report.seconds) + how;
    return "about " + format_seconds(of_runs / double(p.runner.jobs)) + " in several sittings" + how;
}

/// Runs that were trained before there was a record of their time know that of their steps.
double seconds_of_steps(const RunData& data) {
    double seconds = 0;
    int64_t before = 0;
    for (const Point& point : data.points("seconds")) seconds += point.value * double(point.step - before), before = point.step;
    return seconds;
}

std::vector<MeasuredRun> measure(const Plan& p, std::vector<RunOutcome>& outcomes) {
    std::vector<MeasuredRun> measured;
    for (size_t i = 0; i < p.runs.size(); i++) {
        const ExperimentRun& run = p.runs[i];
        MeasuredRun m;
        m.arm = run.arm->name, m.seed = run.seed, m.data = read_run(run.folder), m.diverged = outcomes[i].diverged;
        m.data.name = text(run.arm->name, "-seed", run.seed);
        m.seconds = outcomes[i].seconds = std::max(outcomes[i].seconds, seconds_of_steps(m.data));
        for (const Metric& metric : p.experiment.metrics)
            m.metrics[metric.name] = metric_of(metric, m, [&](const std::string& command) { return read_text_file(printed_path(run, command)); });
        measured.push_back(std::move(m));
    }
    return measured;
}

std::string remark_of(const Plan& p, const std::vector<VerdictCheck>& checks) {
    if (p.options.quick) return "A quick run, which only checks the machinery: its figures say nothing about the paper's finding";
    const int64_t held = std::count_if(checks.begin(), checks.end(), [](const VerdictCheck& c) { return c.holds; });
    return text(held, " of ", checks.size(), " checks hold");
}

Verdict verdict_of(const Plan& p, const std::vector<MeasuredRun>& runs, RunnerReport& report, const std::vector<VerdictCheck>& checks) {
    const Experiment& e = p.experiment;
    Verdict v;
    v.title = e.title + (p.variant.label.empty() ? "" : ", " + p.variant.label) + (p.options.quick ? " (quick: checks the machinery only)" : "");
    v.source = e.source, v.finding = e.finding, v.difference = e.scale;
    for (const Metric& m : e.metrics) v.metrics.push_back(m.label);
    v.rows = rows_of(e, p.variant, runs), v.checks = checks;
    v.reproduced = p.options.quick ? Reproduced::not_judged : outcome_of(e, p.variant, checks);
    v.remark = remark_of(p, checks);
    v.command = command_of(p), v.date = today(), v.machine = machine(), v.wall_time = wall_time(p, report);
    v.plots = {{"curves.svg", "mean over seeds, with the band from the smallest to the largest"}};
    return v;
}

void write_results(const Plan& p, RunnerReport& report) {
    const std::vector<MeasuredRun> runs = measure(p, report.outcomes);
    const std::vector<int64_t> seeds = seeds_of(p.experiment, p.variant, p.options.quick);
    const std::vector<VerdictCheck> checks = judge(p.experiment, p.variant, runs, seeds);
    const Verdict verdict = verdict_of(p, runs, report, checks);
    std::vector<RunData> data;
    for (const MeasuredRun& r : runs) data.push_back(r.data);
    std::vector<std::string> folders = {p.out};
    if (!p.options.results.empty()) folders.push_back(p.variant.name.empty() ? p.options.results : p.options.results + "/" + p.variant.name);
    for (const std::string& folder : folders) {
        std::filesystem::create_directories(folder);
        write_file_whole(folder + "/results.csv", results_csv(p.experiment, p.variant, runs));
        write_file_whole(folder + "/checks.csv", checks_csv(p.variant, checks, seeds));
        write_file_whole(folder + "/curves.svg", to_svg(charts_of(p.experiment, p.variant, runs)));
        write_file_whole(folder + "/results.md", to_markdown(verdict));
    }
    write_file_whole(p.out + "/report.html", to_page(data, {verdict.title, {verdict}}));
    std::printf("%s\nwritten: %s/results.md, results.csv, checks.csv, curves.svg, report.html\n", to_markdown(verdict).c_str(), p.out.c_str());
    std::fflush(stdout);
}

std::string name_of(const std::string& folder) {
    const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
    return (path.has_filename() ? path : path.parent_path()).filename().string();
}

Plan plan_of(const AblationOptions& o, const Experiment& e, const ExperimentVariant& v) {
    Plan p{o, e, v, o.out.empty() ? "runs/ablations/" + name_of(o.folder) + (o.quick ? "-quick" : "") : o.out, {}, {}};
    if (!v.name.empty()) p.out += "/" + v.name;
    p.runs = runs_of(e, v, o.quick, p.out);
    const int64_t most = v.jobs > 0 ? v.jobs : int64_t(p.runs.size());
    p.runner.jobs = std::min(most, o.jobs > 0 ? o.jobs : cores());
    p.runner.threads = o.threads > 0 ? o.threads : std::max<int64_t>(1, cores() / p.runner.jobs);
    p.runner.stop_requested = [] { return stop_requested != 0; };
    return p;
}

}  // namespace

int run_ablation(const AblationOptions& o) {
    const Experiment e = read_experiment(o.folder);
    std::vector<const ExperimentVariant*> variants;
    for (const std::string& name : o.variants) variants.push_back(&e.variant(name));
    if (variants.empty()) variants.push_back(&e.variants[0]);
    signal(SIGINT, request_stop);
    signal(SIGTERM, request_stop);
    for (const ExperimentVariant* v : variants) {
        const Plan p = plan_of(o, e, *v);
        std::printf("%s%s%s: %zu runs, %lld at a time, in %s%s\n", e.title.c_str(), v->label.empty() ? "" : ", ", v->label.c_str(), p.runs.size(),
                    static_cast<long long>(p.runner.jobs), p.out.c_str(), o.quick ? "; quick: checks the machinery only" : "");
        std::fflush(stdout);
        RunnerReport report = run_all(p.runs, e.commands, p.runner);
        if (report.stopped) {
            std::printf("stopped; the same command goes on with it\n");
            return 130;
        }
        write_results(p, report);
    }
    return 0;
}

DataCommand add_ablation_command(CLI::App& app) {
    const auto o = std::make_shared<AblationOptions>();
    CLI::App* c = app.add_subcommand("ablation", "repeat an experiment of a paper on a small model: train its arms, measure, judge; Ctrl-C saves and stops, the same command goes on");
    c->add_option("FOLDER", o->folder, "of the experiment, with its experiment.toml, such as ablations/precision")->required();
    c->add_option("--variant", o->variants, "a variant that experiment.toml names, by default the first; may be repeated")->allow_extra_args(false);
    c->add_option("--jobs", o->jobs, "runs at a time; by default one a core")->check(CLI::Range(int64_t{1}, int64_t{1024}));
    c->add_option("--threads", o->threads, "of each run; by default the cores shared among the runs")->check(CLI::Range(int64_t{1}, int64_t{1024}));
    c->add_flag("--quick", o->quick, "few steps, to check the machinery; the figures mean nothing");
    c->add_option("--out", o->out, "folder for runs and results; by default runs/ablations/NAME");
    c->add_option("--results", o->results, "write results.md, results.csv, checks.csv and curves.svg there too");
    return {"ablation", [o] { return run_ablation(*o); }};
}

}  // namespace clover
