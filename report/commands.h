// The command that shows runs, for train.cu.
#pragma once
#include "../data/commands.h"

namespace clover {

/// `clover report`.
DataCommand add_report_command(CLI::App& app);

}  // namespace clover
