// What a step did to the parameters: the fraction whose stored value stayed as it was, and the size of the update against that of the weights.
// In bf16 an update below half the distance to the next number is lost when it is rounded to nearest; Gopher's authors saw parameters that did not
// change over many steps (Rae et al. 2021, appendix C.2). These counts show it while it happens.
#pragma once
#include <array>
#include <cmath>
#include <vector>

#include "parameters.h"

namespace clover {

/// Of a group of parameters.
struct GroupChange {
    int64_t count = 0;                                              // parameters in it
    double unchanged = 0, step_squares = 0, weight_squares = 0;    // sums over them
    double stale() const { return unchanged / double(count); }
    double update_ratio() const { return std::sqrt(step_squares / weight_squares); }  // ‖Δw‖ / ‖w‖
};

struct StepChanges {
    std::array<GroupChange, parameter_classes> classes;  // by ParameterClass; some may be empty
    std::vector<GroupChange> layers;                     // of the blocks
};

/// changes: a Change for each parameter of the table. Allocates only where `to` has other layers than the model.
void gather(const ParameterTable& table, const std::vector<Change>& changes, StepChanges& to);

}  // namespace clover
