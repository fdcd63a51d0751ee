// Which run may go on from which: a run with --resume from its own checkpoint, a new run with checkpoint.start from another's.
#pragma once
#include <string>
#include <vector>

#include "config.h"

namespace clover {

/// A key that the continuation of a run has another value for, as TOML.
struct Override {
    std::string key, had, has;
};

/// Throws InputError, naming the first key, where a run of config `had` cannot go on under `has`: all that touches what is computed must be the same.
/// `allow` (--override): learning rate, schedule, clipping, weight decay and the number of steps may differ; those that do are returned.
std::vector<Override> require_continues(const std::string& where, const Config& had, const Config& has, bool allow);

/// Throws InputError, naming the key, where parameters of a model `had` would mean something else in a model `has`, whatever their shapes.
void require_same_model(const std::string& where, const Config& had, const Config& has);

}  // namespace clover
