// An experiment of a paper, as ablations/NAME/experiment.toml describes it: arms that differ in some keys of one training config, each trained with several seeds,
// what is measured of a run, and what the paper leads one to expect of it. Read and checked here; report/judgement.h measures and judges, report/ablation.h runs.
//
//   title, source, finding, scale     text: of what paper, what it found, what differs here
//   config = "config.toml"            in the same folder
//   jobs = 1                          at most so many runs at a time: where time is measured
//   seeds = [1, 2, 3]                 runs of different arms with one seed see the same data in the same order: they are compared in pairs
//   [[arm]]      name, label, set = ["section.key=value"], after = "ARM": starts from that arm's last checkpoint of the same seed (checkpoint.start)
//   [[variant]]  name, label, and where it differs: config, set, seeds, arms = ["ARM"], jobs. The first is run where none is asked for
//   [quick]      set, seeds: what makes it a check of the machinery
//   [[command]]  name, run = ["eval", "--checkpoint", "{run}", "--json"]: run by this program after training; prints one JSON object
//   [[metric]]   name, label, take = one of
//                  mean       of series over the last fraction (0.1) of the steps            last     its last value
//                  median     of its values                                                  max      its largest value
//                  diverged   1 if the run ended by a gradient or loss that is not finite, or its mean as above is above `limit`; else 0
//                  json       the value `at` (a JSON pointer, RFC 6901) of what `command` printed
//   [[check]]    claim in words; measure: sums and quotients of ARM:METRIC, such as "bf16:loss - fp32:loss", within a seed;
//                over = "mean" over the seeds or "each"; above, below, or within (of 0); variants = ["VARIANT"], all by default;
//                finding = false: not what the paper says but what has to be right here, such as a mechanism
//   [[chart]]    title, series, minus = "ARM" (the difference to it), smooth (0 to 1), log; or metrics = ["METRIC"] over x = [1, 2, 4], x_label
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace clover {

struct ExperimentArm {
    std::string name, label, after;
    std::vector<std::string> set;
};

struct ExperimentVariant {
    std::string name, label, config;
    std::vector<std::string> set, arms;
    std::vector<int64_t> seeds;
    int64_t jobs = 0;  // 0: as many as one likes
};

struct ExperimentCommand {
    std::string name;
    std::vector<std::string> run;
};

enum class Take : uint8_t { mean, last, median, max, diverged, json };

struct Metric {
    std::string name, label;
    Take take = Take::mean;
    std::string series;
    double fraction = 0.1, limit = std::numeric_limits<double>::infinity();
    std::string command, at;
};

/// ARM:METRIC.
struct Quantity {
    std::string arm, metric;
};
/// sign · factors[0] / factors[1] / …
struct MeasureTerm {
    double sign = 1;
    std::vector<Quantity> factors;
};

struct ExperimentCheck {
    std::string claim, written;  // the measure as it was written
    std::vector<MeasureTerm> measure;
    bool each = false, finding = true;
    double above = -std::numeric_limits<double>::infinity(), below = std::numeric_limits<double>::infinity();
    std::string limit;  // in words
    std::vector<std::string> variants;
};

struct ExperimentChart {
    std::string title, series, minus, x_label;
    double smooth = 0;
    bool log = false;
    std::vector<std::string> metrics;
    std::vector<double> x;
};

struct Experiment {
    std::string folder, title, source, finding, scale;
    std::vector<ExperimentArm> arms;
    std::vector<ExperimentVariant> variants;  // at least one; without [[variant]] one with an empty name
    std::vector<std::string> quick_set;
    std::vector<int64_t> quick_seeds;
    std::vector<ExperimentCommand> commands;
    std::vector<Metric> metrics;
    std::vector<ExperimentCheck> checks;
    std::vector<ExperimentChart> charts;

    const ExperimentArm* arm(const std::string& name) const;
    const Metric* metric(const std::string& name) const;
    /// Throws InputError that names those there are.
    const ExperimentVariant& variant(const std::string& name) const;
};

/// Reads FOLDER/experiment.toml. Throws InputError, one line with file:line, for what is missing, unknown, of the wrong type, or names what there is not.
Experiment read_experiment(const std::string& folder);
/// The same from text; `origin` stands in messages where the file's name would.
Experiment parse_experiment(const std::string& toml, const std::string& origin, const std::string& folder);

/// One run: an arm of a variant with a seed.
struct ExperimentRun {
    const ExperimentArm* arm = nullptr;
    int64_t seed = 0;
    std::string folder;            // below `out`
    std::string config;            // path
    std::vector<std::string> set;  // the variant's, the arm's, quick's; seed; where it starts from
};

/// All runs of a variant, arm by arm within a seed, so that early seeds are whole first. `out`: the folder of the variant's runs.
std::vector<ExperimentRun> runs_of(const Experiment& e, const ExperimentVariant& v, bool quick, const std::string& out);
/// Its arms in order.
std::vector<const ExperimentArm*> arms_of(const Experiment& e, const ExperimentVariant& v);
std::vector<int64_t> seeds_of(const Experiment& e, const ExperimentVariant& v, bool quick);

}  // namespace clover
