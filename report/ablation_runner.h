// The runs of one variant of an experiment as processes, several at a time.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "experiment.h"

namespace clover {

struct RunnerOptions {
    int64_t jobs = 1, threads = 1;
    std::function<bool()> stop_requested;  // asked often; once true, the runs are stopped, and they save
};

struct RunOutcome {
    bool diverged = false;
    double seconds = 0;  // of wall time, over all sittings
};

struct RunnerReport {
    std::vector<RunOutcome> outcomes;  // of each run
    bool stopped = false;              // by stop_requested
    bool one_sitting = true;           // no run had been begun before
    double seconds = 0;                // of this sitting
};

/// Throws InputError or Error with the run's last line where one failed; the others are stopped first, and have saved.
RunnerReport run_all(const std::vector<ExperimentRun>& runs, const std::vector<ExperimentCommand>& commands, const RunnerOptions& o);

/// What [[command]] `name` printed for a run.
std::string printed_path(const ExperimentRun& run, const std::string& name);

}  // namespace clover
