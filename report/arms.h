// Which runs are the same experiment with another seed: their configs differ in nothing that changes what is computed but train.seed.
#pragma once
#include <string>
#include <vector>

#include "run_data.h"

namespace clover {

struct Arm {
    std::string name;          // what its runs' names begin with
    std::vector<size_t> runs;  // their places
};

/// In the order of their first runs.
std::vector<Arm> arms_of(const std::vector<RunData>& runs);

/// The keys in which the configs differ, in the order of the alphabet.
std::vector<std::string> differing_keys(const std::vector<RunData>& runs);

}  // namespace clover
