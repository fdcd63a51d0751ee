// What the runs of an experiment measured, and whether it is what the paper found.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "chart.h"
#include "experiment.h"
#include "verdict.h"

namespace clover {

/// One run and what was measured of it. What a run that diverged no longer reached (its last loss, say) is NaN.
struct MeasuredRun {
    std::string arm;
    int64_t seed = 0;
    RunData data;
    bool diverged = false;  // ended by a number that is not finite
    double seconds = 0;     // of wall time
    std::map<std::string, double> metrics;
};

/// `printed(command)`: what the [[command]] of that name printed for this run, a JSON text.
double metric_of(const Metric& m, const MeasuredRun& run, const std::function<std::string(const std::string& command)>& printed);

/// The checks that are for this variant, each with its value for each of `seeds`: NaN, which holds nothing, where an arm was not measured.
std::vector<VerdictCheck> judge(const Experiment& e, const ExperimentVariant& v, const std::vector<MeasuredRun>& runs, const std::vector<int64_t>& seeds);
/// yes: all checks of the finding hold; no: none; else partly.
Reproduced outcome_of(const Experiment& e, const ExperimentVariant& v, const std::vector<VerdictCheck>& checks);
/// Mean and spread over seeds of each metric for each arm.
std::vector<VerdictRow> rows_of(const Experiment& e, const ExperimentVariant& v, const std::vector<MeasuredRun>& runs);
std::vector<Chart> charts_of(const Experiment& e, const ExperimentVariant& v, const std::vector<MeasuredRun>& runs);

/// variant,arm,seed,METRIC…,not_finite,wall_seconds: a line a run.
std::string results_csv(const Experiment& e, const ExperimentVariant& v, const std::vector<MeasuredRun>& runs);
/// variant,claim,measure,limit,mean,sd,seed1…,holds: a line a check.
std::string checks_csv(const ExperimentVariant& v, const std::vector<VerdictCheck>& checks, const std::vector<int64_t>& seeds);

}  // namespace clover
