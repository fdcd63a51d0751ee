// What a run left behind, read back: OUT/config.toml and OUT/log.jsonl (model/run_log.cpp writes them).
//
// log.jsonl holds one JSON object a line, each with "step". Every number in it is a point of a series that is named after where it stands:
//   {"step": 7, "loss": 2.5, "lr": 1e-3, …}                                        "loss", "lr", …
//   {"step": 7, …, "stale": {"classes": {"matrices": 0.9}, "layers": [0.8, 0.7]}}   "stale.matrices", "stale.layer.0", "stale.layer.1"; "update" likewise
//   {"step": 7, "valid": {"loss": 2.4, "sets": {"en": {"loss": 2.3}}}}              "valid.loss", "valid.en.loss"
//   {"step": 7, "spike": "loss", "value": 5.0, "mean": 2.5, "sd": 0.1}              RunData::spikes
// null is what JSON has for a number that is not finite: NaN here. Text (samples) is passed over.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace clover {

struct Point {
    int64_t step = 0;
    double value = 0;
};
using Points = std::vector<Point>;

struct RunData {
    struct Spike {
        int64_t step = 0;
        std::string series;  // "loss" or "grad_norm"
        double value = 0, mean = 0, sd = 0;  // and what the steps before had
    };
    std::string folder, name;                   // name: the folder's own name, or where two share it all of the path in which they differ (read_runs)
    std::map<std::string, std::string> config;  // "section.key": the value as config.toml prints it
    std::map<std::string, Points> series;       // steps ascend
    std::vector<Spike> spikes;

    /// The points of a series; none if the log has no such series.
    const Points& points(const std::string& name) const;
};

/// Throws InputError, one line that names file and line, for what is no run or is damaged. A last line without its line feed is one that is being written:
/// where it is cut, it is passed over. A run without any step yet has no series.
RunData read_run(const std::string& folder);
/// With names that tell the runs apart.
std::vector<RunData> read_runs(const std::vector<std::string>& folders);

/// The two readers by themselves; `origin` is the file's name in messages.
void read_log(std::string_view text, const std::string& origin, RunData& run);
void read_config_values(std::string_view text, const std::string& origin, RunData& run);

/// The mean over the last `fraction` of the steps, 0 to 1; at least the last point. A point stands for the steps since the one before it, as a line of a log with
/// train.record_every does. NaN for no points.
double mean_of_last(const Points& points, double fraction);
/// NaN for no points.
double last_value(const Points& points);

/// Sample mean and standard deviation (n - 1); sd is 0 for one value, both are NaN for none.
struct Spread {
    int64_t n = 0;
    double mean = 0, sd = 0;
};
Spread spread_of(const std::vector<double>& values);

}  // namespace clover
