// The report: one HTML file that needs nothing else, neither network nor fonts nor libraries, for a screen of any size and for paper. It holds the numbers of the
// CSV, rounded to six digits, and page.js draws them. What stands where:
//   verdicts · final values · where the configs differ · curves, all under one set of switches · every other series · spikes · last values · what the configs share
// The switches are the page's fragment, so that a link keeps them: #log&logx&smooth=0.9&from=0.1&band&hide=0,2&at=300 (page.js).
#pragma once
#include <string>
#include <vector>

#include "run_data.h"
#include "verdict.h"

namespace clover {

struct PageOptions {
    std::string title = "Clover report";
    std::vector<Verdict> verdicts;
    int64_t points_per_curve = 1500;   // more are thinned (curve.h), and the page says so
    int64_t points_in_all = 600000;    // with many curves each has fewer, at least 200
};

std::string to_page(const std::vector<RunData>& runs, const PageOptions& options = {});

}  // namespace clover
