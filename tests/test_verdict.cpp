// Verdicts as Markdown and as HTML.
#include <doctest/doctest.h>

#include <limits>

#include "../report/verdict.h"

using namespace clover;

namespace {

Verdict example() {
    Verdict v;
    v.title = "Rounding <b>";
    v.source = "A paper, section 1";
    v.finding = "fp32 < bf16 | always";
    v.difference = "Size.";
    v.metrics = {"final loss", "seconds"};
    v.rows = {{"fp32", {{2, 2.5312, 0.00123}, {2, 10, 0}}}, {"bf16", {{2, 2.9, 0.25}, {0, 0, 0}}}};
    v.checks = {{"bf16 above fp32", "difference by seed", {0.4, 0.5}, "> 0.1", true}};
    v.reproduced = Reproduced::yes;
    v.command = "make ablations";
    v.date = "2026-12-01", v.machine = "2 cores", v.wall_time = "5 minutes";
    v.plots = {{"loss.svg", "loss"}};
    return v;
}

}  // namespace

TEST_SUITE("verdict") {
    TEST_CASE("figures as shown") {
        CHECK(shown(2.53123456) == "2.5312");
        CHECK(shown(33551.4) == "33551");
        CHECK(shown(0.0003) == "0.0003");
        CHECK(shown(1.23456e-7) == "1.23e-07");
        CHECK(shown(-0.0) == "0");
        CHECK(shown(std::numeric_limits<double>::quiet_NaN()) == "not finite");
        CHECK(shown(Spread{5, 2.53123, 0.0123}) == "2.531 ± 0.012");
        CHECK(shown(Spread{5, 33551.4, 120.2}) == "33551 ± 120");
        CHECK(shown(Spread{1, 2.5, 0}) == "2.5");
        CHECK(shown(Spread{}) == "–");
    }

    TEST_CASE("Markdown") {
        const std::string expected =
            "# Rounding &lt;b>\n\n**Source:** A paper, section 1\n\n**The paper's finding:** fp32 &lt; bf16 \\| always\n\n**Reproduced here:** yes\n\n**What differs:** Size.\n\n"
            "![loss](loss.svg)\n\n"
            "| arm | seeds | final loss | seconds |\n|---|---|---|---|\n| fp32 | 2 | 2.5312 ± 0.0012 | 10 |\n| bf16 | 2 | 2.90 ± 0.25 | – |\n\n"
            "| claim | measured | mean ± sd | each seed | limit | holds |\n|---|---|---|---|---|---|\n"
            "| bf16 above fp32 | difference by seed | 0.450 ± 0.071 | 0.4, 0.5 | > 0.1 | yes |\n\n"
            "Measured on 2026-12-01, on 2 cores, in 5 minutes. To repeat it: `make ablations`\n";
        CHECK(to_markdown(example()) == expected);
    }

    TEST_CASE("HTML escapes what it shows") {
        const std::string html = to_html(example());
        CHECK(html.find("<h2>Rounding &lt;b&gt;</h2>") != std::string::npos);
        CHECK(html.find("<td>0.450 ± 0.071") != std::string::npos);
        CHECK(html.find("class=\"verdict yes\"") != std::string::npos);
    }
}
