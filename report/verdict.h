// The verdict on an experiment: what a paper found, what was measured here, and whether the two agree. The experiment's runner fills it; it is shown as Markdown
// (ablations/NAME/README.md) and as a section of the report's page.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run_data.h"

namespace clover {

/// One claim, measured.
struct VerdictCheck {
    std::string claim;               // "bf16 ends above bf16-sr"
    std::string metric;              // what is measured: "difference of the final training loss, paired by seed"
    std::vector<double> per_seed;    // one value a seed
    std::string limit;               // what it is held to: "> 0.1"
    bool holds = false;
};

/// One line of the table: an arm and the spread of each metric over its seeds.
struct VerdictRow {
    std::string arm;
    std::vector<Spread> values;      // one for each of Verdict::metrics; n = 0: not measured
};

/// A diagram beside the verdict: an SVG file, by its path from the Markdown file.
struct VerdictPlot {
    std::string file, caption;
};

enum class Reproduced : uint8_t { no, partly, yes, not_judged };

struct Verdict {
    std::string title;               // "Gopher precision"
    std::string source;              // "Rae et al. 2021, Appendix C.3, Figure A8"
    std::string finding;             // what the paper found, in a sentence or two
    std::string difference;          // what differs in scale here
    std::vector<std::string> metrics;
    std::vector<VerdictRow> rows;
    std::vector<VerdictCheck> checks;
    Reproduced reproduced = Reproduced::no;
    std::string remark;              // what there is to say about it; may be empty
    std::string command;             // what repeats it
    std::string date, machine, wall_time;
    std::vector<VerdictPlot> plots;  // Markdown only: the page has its own curves
};

/// "yes", "partly", "no", "not judged".
std::string to_string(Reproduced);
/// Whole, from the heading (`level` 1: "# ") on.
std::string to_markdown(const Verdict& verdict, int level = 1);
/// A <section> for the page.
std::string to_html(const Verdict& verdict);

/// Five significant digits, as tables show a value.
std::string shown(double value);
/// "2.531 ± 0.012", without the spread for one value; "–" for none.
std::string shown(const Spread& spread);

}  // namespace clover
