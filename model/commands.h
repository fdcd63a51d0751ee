// The command that evaluates trained models, for train.cu.
#pragma once
#include "../data/commands.h"

namespace clover {

/// `clover eval`.
DataCommand add_eval_command(CLI::App& app);

}  // namespace clover
