// Runs an experiment (experiment.h) and writes down what came of it. Every run is a process of this program, OUT/VARIANT/ARM/seedN its folder; a run that is whole is
// kept, one that was interrupted goes on. One that ends by a number that is not finite has diverged: a result. OUT/VARIANT then holds
//   results.md, results.csv, checks.csv, curves.svg, report.html
// and of each run, beside what `clover train` writes: output.txt (what the run printed), run.json (how it ended), COMMAND.json (what a [[command]] printed).
#pragma once
#include <string>
#include <vector>

#include "../data/commands.h"
#include "experiment.h"

namespace clover {

struct AblationOptions {
    std::string folder, out, results;    // out "": runs/ablations/NAME, or NAME-quick; results: where the small files go too
    std::vector<std::string> variants;   // none: the first
    int64_t jobs = 0, threads = 0;       // 0: one run a core; the cores shared among the runs
    bool quick = false;
};

/// Returns the exit code: 0, or 130 after Ctrl-C. Throws where a run failed, with the last thing it said.
int run_ablation(const AblationOptions& o);

/// `clover ablation`.
DataCommand add_ablation_command(CLI::App& app);

}  // namespace clover
