#include "verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "../kernels/error.h"
#include "escape.h"

namespace clover {
namespace {

std::string format(const char* pattern, int digits, double value) {
    char buffer[400];
    std::snprintf(buffer, sizeof buffer, pattern, digits, value);
    return buffer;
}

std::string per_seed(const VerdictCheck& check) {
    std::string list;
    for (const double v : check.per_seed) list += (list.empty() ? "" : ", ") + shown(v);
    return list;
}

int64_t seeds(const VerdictRow& row) {
    int64_t n = 0;
    for (const Spread& s : row.values) n = std::max(n, s.n);
    return n;
}

/// A table as rows of cells, the first row its head.
using Table = std::vector<std::vector<std::string>>;

Table arms_table(const Verdict& v) {
    Table table = {{"arm", "seeds"}};
    table[0].insert(table[0].end(), v.metrics.begin(), v.metrics.end());
    for (const VerdictRow& row : v.rows) {
        CLOVER_CHECK(row.values.size() == v.metrics.size());
        table.push_back({row.arm, std::to_string(seeds(row))});
        for (const Spread& s : row.values) table.back().push_back(shown(s) + (s.n != 0 && s.n != seeds(row) ? text(" (", s.n, ")") : ""));
    }
    return table;
}

Table checks_table(const Verdict& v) {
    Table table = {{"claim", "measured", "mean ± sd", "each seed", "limit", "holds"}};
    for (const VerdictCheck& c : v.checks)
        table.push_back({c.claim, c.metric, shown(spread_of(c.per_seed)), per_seed(c), c.limit, c.holds ? "yes" : "no"});
    return table;
}

std::string markdown_table(const Table& table) {
    std::string out;
    for (size_t i = 0; i < table.size(); i++) {
        for (const std::string& cell : table[i]) out += "| " + escape_markdown(cell) + " ";
        out += "|\n";
        for (size_t j = 0; i == 0 && j < table[0].size(); j++) out += "|---";
        if (i == 0) out += "|\n";
    }
    return out + "\n";
}

std::string html_table(const Table& table) {
    std::string out = "<div class=\"wide\"><table>\n";
    for (size_t i = 0; i < table.size(); i++) {
        out += "<tr>";
        for (const std::string& cell : table[i]) out += (i == 0 ? "<th>" : cell.size() > 24 ? "<td class=\"text\">" : "<td>") + escape_xml(cell);
        out += "\n";
    }
    return out + "</table></div>\n";
}

/// What is said around the tables, in order: a heading and its text.
std::vector<std::pair<std::string, std::string>> statements(const Verdict& v) {
    return {{"Source", v.source}, {"The paper's finding", v.finding}, {"Reproduced here", to_string(v.reproduced) + (v.remark.empty() ? "" : ". " + v.remark)},
            {"What differs", v.difference}};
}
std::string measured(const Verdict& v) { return "Measured on " + v.date + ", on " + v.machine + ", in " + v.wall_time + "."; }

}  // namespace

std::string to_string(Reproduced r) {
    const char* words[] = {"no", "partly", "yes", "not judged"};
    return words[size_t(r)];
}

std::string shown(double value) {
    const double a = std::fabs(value);
    if (!std::isfinite(value)) return "not finite";
    if (value == 0) return "0";
    if (a >= 10000 && a < 1e15) return format("%.*f", 0, value);
    return format("%.*g", a < 1e-4 ? 3 : 5, value);
}

std::string shown(const Spread& s) {
    if (s.n == 0) return "–";
    if (s.n == 1 || !std::isfinite(s.mean) || s.sd == 0) return shown(s.mean);
    if (std::max(std::fabs(s.mean), s.sd) < 1e-4) return format("%.*g", 3, s.mean) + " ± " + format("%.*g", 2, s.sd);
    const int decimals = std::clamp(1 - int(std::floor(std::log10(s.sd))), 0, 6);  // two significant digits of sd
    return format("%.*f", decimals, s.mean) + " ± " + format("%.*f", decimals, s.sd);
}

std::string to_markdown(const Verdict& v, int level) {
    std::string out = std::string(size_t(level), '#') + " " + escape_markdown(v.title) + "\n\n";
    for (const auto& [heading, said] : statements(v))
        if (!said.empty()) out += "**" + heading + ":** " + escape_markdown(said) + "\n\n";
    for (const VerdictPlot& p : v.plots) out += "![" + escape_markdown(p.caption) + "](" + p.file + ")\n\n";
    if (!v.rows.empty()) out += markdown_table(arms_table(v));
    if (!v.checks.empty()) out += markdown_table(checks_table(v));
    return out + measured(v) + (v.command.empty() ? "" : " To repeat it: `" + v.command + "`") + "\n";
}

std::string to_html(const Verdict& v) {
    std::string out = "<section class=\"verdict " + std::string(v.reproduced == Reproduced::yes ? "yes" : v.reproduced == Reproduced::no ? "no" : "open") + "\">\n<h2>" + escape_xml(v.title) + "</h2>\n";
    for (const auto& [heading, said] : statements(v))
        if (!said.empty()) out += "<p><b>" + escape_xml(heading) + ":</b> " + escape_xml(said) + "\n";
    if (!v.rows.empty()) out += html_table(arms_table(v));
    if (!v.checks.empty()) out += html_table(checks_table(v));
    out += "<p>" + escape_xml(measured(v));
    if (!v.command.empty()) out += " To repeat it: <code>" + escape_xml(v.command) + "</code>";
    return out + "\n</section>\n";
}

}  // namespace clover
