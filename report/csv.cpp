#include "csv.h"

#include <charconv>
#include <cmath>

#include "../data/new_file.h"
#include "escape.h"

namespace clover {
namespace {

const char* const head = "run,series,step,value\n";

void add_line(std::string& csv, const std::string& start, int64_t step, double value) {
    char digits[32];
    csv += start + std::to_string(step) + ",";
    if (std::isfinite(value)) csv.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
    else csv += "nan";
    csv += "\n";
}

std::string rows_of(const RunData& run, const std::string& series, const Points& points) {
    std::string csv;
    const std::string start = csv_field(run.name) + "," + csv_field(series) + ",";
    for (const Point& p : points) add_line(csv, start, p.step, p.value);
    return csv;
}

std::string rows_of_spikes(const RunData& run) {
    std::string csv;
    for (const RunData::Spike& s : run.spikes) add_line(csv, csv_field(run.name) + "," + csv_field("spike." + s.series) + ",", s.step, s.value);
    return csv;
}

/// Calls write(text) for each part of the file.
template <class Write>
void for_each_part(const std::vector<RunData>& runs, Write&& write) {
    write(std::string(head));
    for (const RunData& run : runs) {
        for (const auto& [name, points] : run.series) write(rows_of(run, name, points));
        write(rows_of_spikes(run));
    }
}

}  // namespace

std::string csv_of(const std::vector<RunData>& runs) {
    std::string csv;
    for_each_part(runs, [&](const std::string& part) { csv += part; });
    return csv;
}

void write_csv(const std::vector<RunData>& runs, const std::string& path) {
    NewFile file(path);
    for_each_part(runs, [&](const std::string& part) { file.write(part.data(), part.size()); });
    file.commit();
}

}  // namespace clover
