// The optimizer's step over all parameters, as the config says.
#pragma once
#include "parameters.h"

namespace clover {

struct Update {
    Tensor grad_scale = {};  // (1) f32: what the gradient is multiplied by; where it is not a number nothing changes
    double lr;
    int64_t step;        // of the run, from 1: the key of random rounding
    int64_t updates;     // that changed something, with this one
    bool changes = false;  // fill Parameters::changes
};

/// Scratch of update() and of Parameters::refresh().
size_t update_workspace_bytes(const Device& device, const Config& config, const Parameters& parameters);
void update(Context& ctx, const Config& config, const Parameters& parameters, const Update& u);
/// What update() reads and writes.
size_t update_traffic_bytes(const Config& config, const Parameters& parameters);

}  // namespace clover
