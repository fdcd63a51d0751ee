// The tables of the report's page.
#pragma once
#include <string>
#include <vector>

#include "arms.h"

namespace clover {

/// One row a run: last step, losses, validation, speed, spikes. Where arms have several seeds: one row an arm with the spread, and the runs folded.
std::string final_values_table(const std::vector<RunData>& runs, const std::vector<Arm>& arms);
/// One row an arm, one column a key that is not the same in all; with nothing to say, "".
std::string differences_table(const std::vector<RunData>& runs, const std::vector<Arm>& arms);
/// The keys with one value in all runs.
std::string shared_config_table(const std::vector<RunData>& runs);
std::string spikes_table(const std::vector<RunData>& runs);
/// One row a series, one column a run: the step and value of the last point.
std::string last_values_table(const std::vector<RunData>& runs);

/// What can be opened.
std::string folded(const std::string& summary, const std::string& content);

/// The names X of all series START + X + END, over all runs, ordered; numbers by value.
std::vector<std::string> names_between(const std::vector<RunData>& runs, const std::string& start, const std::string& end);

}  // namespace clover
