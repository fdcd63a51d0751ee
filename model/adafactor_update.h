// Adafactor's step over all parameters, as the config says.
#pragma once
#include "parameters.h"

namespace clover {

/// Of step `t` with the learning rate lr; the gradient times *grad_scale (1).
Adafactor adafactor_of(const Config& config, const Parameters& parameters, const Weights& weights, Tensor grad_scale, double lr, int64_t t);
/// The three calls of kernels/adafactor.h of a run with one rank.
void update_by_adafactor(Context& ctx, const Adafactor& a);
/// What they read and write.
size_t adafactor_traffic_bytes(const Adafactor& a);

}  // namespace clover
