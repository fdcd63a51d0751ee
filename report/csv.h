// All series of runs as one CSV file (RFC 4180), a line a value: run,series,step,value. Spikes are the series spike.loss and spike.grad_norm; a value that is not
// finite is "nan". Values are the shortest decimals that read back to what the log has.
#pragma once
#include <string>
#include <vector>

#include "run_data.h"

namespace clover {

std::string csv_of(const std::vector<RunData>& runs);
/// Whole or not at all.
void write_csv(const std::vector<RunData>& runs, const std::string& path);

}  // namespace clover
