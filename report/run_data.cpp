#include "run_data.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "../data/text_source.h"
#include "../data/toml.h"

namespace clover {
namespace {

using json = nlohmann::json;
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr size_t most_series = 10000;  // the largest models have some hundred

struct LogReader {
    const std::string& origin;
    RunData& run;
    int64_t line = 0, step = 0;

    std::string place() const { return text(origin, ":", line); }

    void add(const std::string& name, double value) {
        Points& points = run.series[name];
        require(run.series.size() <= most_series, place(), ": more than ", most_series, " different series, which no run has; is this a log of Clover?");
        require(points.empty() || points.back().step < step, place(), ": ", one_line(name, 80), " of step ", step, " comes after that of step ",
                points.empty() ? 0 : points.back().step, "; a log goes forward: two runs wrote it, or it was edited");
        points.push_back({step, value});
    }
    /// Every number at or below `value`. The words between a name and its parts are left out: valid.sets.en is valid.en, stale.layers[3] stale.layer.3.
    void add_numbers(const std::string& name, const json& value, int depth = 0) {
        if (value.is_number()) add(name, value.get<double>());
        else if (value.is_null()) add(name, not_a_number);
        else if (value.is_boolean()) add(name, value.get<bool>() ? 1 : 0);
        else if (depth == 4) return;
        else if (value.is_array())
            for (size_t i = 0; i < value.size(); i++) add_numbers(text(name, ".", i), value[i], depth + 1);
        else if (value.is_object())
            for (const auto& [key, inner] : value.items()) {
                const bool between = depth == 0 && (key == "sets" || key == "classes");
                add_numbers(between ? name : name + "." + (depth == 0 && key == "layers" ? "layer" : key), inner, between ? depth : depth + 1);
            }
    }
    void add_spike(const json& entry) {
        const auto number = [&](const char* key) { return entry.contains(key) && entry[key].is_number() ? entry[key].get<double>() : not_a_number; };
        require(entry["spike"].is_string(), place(), ": \"spike\" is the name of a series");
        run.spikes.push_back({step, entry["spike"].get<std::string>(), number("value"), number("mean"), number("sd")});
    }
    void add_line(std::string_view written, bool complete) {
        const json entry = json::parse(written, nullptr, false);
        if (entry.is_discarded() && !complete) return;
        require(entry.is_object(), place(), ": not a JSON object: `", one_line(std::string(written.substr(0, 60)), 60), "`; the log is damaged: remove the line, or resume the run from a checkpoint");
        const auto at = entry.find("step");
        require(at != entry.end() && at->is_number_integer() && at->get<int64_t>() >= 0, place(), ": has no \"step\", an integer of at least 0, as every line of a log has");
        step = at->get<int64_t>();
        if (entry.contains("spike")) return add_spike(entry);
        if (entry.contains("override")) return;
        const bool validation = entry.contains("valid");  // repeats what the step's own line says
        for (const auto& [key, value] : entry.items())
            if (key != "step" && (!validation || key == "valid" || key == "drawn")) add_numbers(key, value);
    }
};

void trim(std::string& s) {
    const size_t first = s.find_first_not_of(" \t\r"), last = s.find_last_not_of(" \t\r");
    s = first == std::string::npos ? "" : s.substr(first, last - first + 1);
}

}  // namespace

const Points& RunData::points(const std::string& name) const {
    static const Points none;
    const auto found = series.find(name);
    return found == series.end() ? none : found->second;
}

void read_log(std::string_view text, const std::string& origin, RunData& run) {
    LogReader reader{origin, run};
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        reader.line++;
        if (end > begin) reader.add_line(text.substr(begin, end - begin), end < text.size());
        begin = end + 1;
    }
}

// Values are kept as they are printed, which the parsed table no longer knows; a list goes on over lines that are indented or close it.
void read_config_values(std::string_view toml, const std::string& origin, RunData& run) {
    parse_toml(std::string(toml), origin);
    std::string section;
    std::string* value = nullptr;
    for (size_t begin = 0; begin < toml.size();) {
        const size_t end = std::min(toml.find('\n', begin), toml.size());
        std::string line(toml.substr(begin, end - begin));
        begin = end + 1;
        const bool continues = value && !line.empty() && (line[0] == ' ' || line[0] == '\t' || line[0] == ']');
        trim(line);
        const size_t equals = line.find('=');
        if (line.empty() || line[0] == '#') continue;
        if (continues) {
            *value += (line[0] == ']' || value->back() == '[' ? "" : " ") + line;
        } else if (line[0] == '[') {
            section = line.substr(1, line.find(']') - 1);
            value = nullptr;
        } else if (equals != std::string::npos) {
            std::string key = line.substr(0, equals), printed = line.substr(equals + 1);
            trim(key), trim(printed);
            value = &(run.config[(section.empty() ? "" : section + ".") + key] = printed);
        }
    }
}

RunData read_run(const std::string& folder) {
    namespace fs = std::filesystem;
    const std::string log = folder + "/log.jsonl", config = folder + "/config.toml";
    std::error_code ignored;
    require(fs::is_directory(folder, ignored), folder, ": is no folder; name the folder of a run, what --out of ./clover train named");
    for (const std::string& file : {config, log})
        require(fs::is_regular_file(file, ignored), file, ": is missing; ", folder, " is not the folder of a run, what --out of ./clover train named");
    RunData run;
    run.folder = folder;
    fs::path path = fs::path(folder).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    run.name = path == "." || path == ".." ? fs::absolute(folder).lexically_normal().parent_path().filename().string() : path.filename().string();
    read_config_values(read_text_file(config), config, run);
    read_log(read_text_file(log), log, run);
    return run;
}

namespace {

/// Bytes of the folders that all of them begin with, up to a slash.
size_t shared_parents(const std::vector<std::string>& folders) {
    size_t same = folders[0].size();
    for (const std::string& f : folders) {
        size_t n = 0;
        while (n < same && n < f.size() && f[n] == folders[0][n]) n++;
        same = n;
    }
    const size_t slash = folders[0].substr(0, same).rfind('/');
    return slash == std::string::npos ? 0 : slash + 1;
}

}  // namespace

std::vector<RunData> read_runs(const std::vector<std::string>& folders) {
    std::vector<RunData> runs;
    std::map<std::string, int> uses;
    for (const std::string& folder : folders) {
        runs.push_back(read_run(folder));
        uses[runs.back().name]++;
    }
    if (uses.size() < runs.size()) {
        const size_t shared = shared_parents(folders);
        for (RunData& run : runs) run.name = run.folder.substr(shared);
    }
    uses.clear();
    for (const RunData& run : runs) require(++uses[run.name] == 1, run.folder, ": is named twice; name each run once");
    return runs;
}

double mean_of_last(const Points& points, double fraction) {
    if (points.empty()) return not_a_number;
    const double after = double(points.back().step) * (1 - fraction);
    double sum = 0, steps = 0;
    for (size_t i = points.size(); i-- > 0 && (steps == 0 || double(points[i].step) > after);) {
        const double weight = points.size() == 1 ? 1 : double(points[i].step - (i == 0 ? 0 : points[i - 1].step));
        if (weight <= 0) continue;  // a value of step 0
        sum += weight * points[i].value, steps += weight;
    }
    return sum / steps;
}

double last_value(const Points& points) { return points.empty() ? not_a_number : points.back().value; }

Spread spread_of(const std::vector<double>& values) {
    const int64_t n = int64_t(values.size());
    if (n == 0) return {0, not_a_number, not_a_number};
    double sum = 0, squares = 0;
    for (const double v : values) sum += v;
    for (const double v : values) squares += (v - sum / double(n)) * (v - sum / double(n));
    return {n, sum / double(n), n == 1 ? 0 : std::sqrt(squares / double(n - 1))};
}

}  // namespace clover
