// Made-up runs for the tests of the report; its CSV and its markup read back by rules of our own.
#pragma once
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "temporary_folder.h"

namespace clover::test {

struct MadeRun {
    std::string name = "run", recipe = "fp32", more = "";  // more: lines of [data] in the config
    int seed = 1, steps = 400;
    bool fp16 = false, mechanism = false, spike = false, diverges = false;
};

inline std::string made_log(const MadeRun& r) {
    std::ostringstream log;
    log.precision(17);
    for (int step = 1; step <= r.steps; step++) {
        const double noise = std::sin(step * 12.9898 + r.seed * 78.233) * 0.1, loss = 2 + 6 / std::sqrt(double(step)) + noise + (r.spike && step == 300 ? 4 : 0);
        log << "{\"step\":" << step << ",\"samples\":" << step * 4 << ",\"tokens\":" << step * 256 << ",\"loss\":";
        if (r.diverges && step > 250) log << "null";
        else log << loss;
        log << ",\"grad_norm\":" << 1 + noise << ",\"lr\":" << 1e-3 * std::min(1.0, step / 100.0) << ",\"tokens_per_s\":" << 33000 + 1000 * noise << ",\"seconds\":0.01";
        if (r.fp16) log << ",\"loss_scale\":" << (step < 200 ? 65536 : 32768) << ",\"skipped\":" << (step == 200 ? "true" : "false");
        if (r.mechanism && step % 50 == 0)
            for (const char* what : {"stale", "update"})
                log << ",\"" << what << "\":{\"classes\":{\"embedding\":" << 0.5 + noise << ",\"matrices\":" << step / 500.0 << "},\"layers\":[" << step / 1000.0 << "," << step / 800.0 << "]}";
        log << "}\n";
        if (r.spike && step == 300) log << "{\"step\":300,\"spike\":\"loss\",\"value\":" << loss << ",\"mean\":2.3,\"sd\":0.1}\n";
        if (step % 100 == 0)
            log << "{\"step\":" << step << ",\"tokens\":1,\"valid\":{\"loss\":" << loss << ",\"bits_per_byte\":" << loss / 2 << ",\"sets\":{\"en\":{\"loss\":" << loss << ",\"bits_per_byte\":"
                << loss / 3 << "},\"de\":{\"loss\":" << loss << ",\"bits_per_byte\":" << loss / 4 << "}}},\"drawn\":{\"en\":" << step << "}}\n";
    }
    return log.str();
}

/// Writes a run into FOLDER/NAME and returns its path.
inline std::string make_run(const TemporaryFolder& folder, const MadeRun& r) {
    std::filesystem::create_directories(folder / r.name);
    folder.file(r.name + "/config.toml", "[data]\n" + r.more + "[train]\nsteps = " + std::to_string(r.steps) + "\nseed = " + std::to_string(r.seed) + "\n\n[precision]\nrecipe = \"" + r.recipe + "\"\n");
    folder.file(r.name + "/log.jsonl", made_log(r));
    return folder / r.name;
}

/// (run, series, step) → value.
using CsvValues = std::map<std::tuple<std::string, std::string, int64_t>, double>;

inline std::vector<std::string> csv_fields(const std::string& line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (size_t i = 0; i < line.size(); i++) {
        if (quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"') fields.back() += line[++i];
        else if (line[i] == '"') quoted = !quoted;
        else if (line[i] == ',' && !quoted) fields.emplace_back();
        else fields.back() += line[i];
    }
    return fields;
}

inline CsvValues read_csv(const std::string& text) {
    CsvValues values;
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
        const std::vector<std::string> f = csv_fields(line);
        values[{f.at(0), f.at(1), std::stoll(f.at(2))}] = std::stod(f.at(3));
    }
    return values;
}

/// What lies between `start` and `end`, for each place in turn.
inline std::vector<std::string> all_between(const std::string& s, const std::string& start, const std::string& end) {
    std::vector<std::string> found;
    for (size_t at = s.find(start); at != std::string::npos; at = s.find(start, at)) {
        at += start.size();
        found.push_back(s.substr(at, s.find(end, at) - at));
    }
    return found;
}

/// Equal at the six digits that the page has.
inline bool same_six_digits(double shown, double exact) { return std::isnan(exact) ? std::isnan(shown) : std::fabs(shown - exact) <= 5.1e-6 * std::fabs(exact); }

}  // namespace clover::test
