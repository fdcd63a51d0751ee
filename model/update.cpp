#include "update.h"

#include <algorithm>

namespace clover {
namespace {

Adamw adamw(const Config& config, const Parameters& p, const Update& u) {
    const OptimizerConfig& o = config.optimizer;
    Weights weights = p.weights(u.step);
    if (u.changes) weights.changes = p.changes;
    return {.weights = weights, .m = p.m, .v = p.v, .grad = p.grad, .grad_scale = u.grad_scale, .lr = float(u.lr), .beta1 = float(o.beta1),
            .beta2 = float(o.beta2), .eps = float(o.eps), .t = u.updates};
}

}  // namespace

size_t update_workspace_bytes(const Device& device, const Config& config, const Parameters& parameters) {
    const Adamw a = adamw(config, parameters, {.lr = 0, .step = 1, .updates = 1, .changes = true});
    return std::max(device.adamw.workspace_bytes(a), device.optimizer.refresh_workspace_bytes(a.weights));
}

void update(Context& ctx, const Config& config, const Parameters& parameters, const Update& u) {
    ctx.device.adamw.update(ctx, adamw(config, parameters, u));
}

size_t update_traffic_bytes(const Parameters& p) {
    size_t bytes = p.grad.bytes() + p.copy.bytes();
    for (const Tensor& both_ways : {p.master, p.m, p.v}) bytes += 2 * both_ways.bytes();
    return bytes;
}

}  // namespace clover
