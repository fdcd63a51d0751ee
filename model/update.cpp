#include "update.h"

#include <algorithm>

#include "adafactor_update.h"

namespace clover {
namespace {

Adamw adamw(const Config& config, const Parameters& p, const Update& u) {
    const OptimizerConfig& o = config.optimizer;
    Weights weights = p.weights(u.step);
    if (u.changes) weights.changes = p.changes;
    return {.weights = weights, .m = p.m, .v = p.v, .grad = p.grad, .grad_scale = u.grad_scale, .lr = float(u.lr), .beta1 = float(o.beta1),
            .beta2 = float(o.beta2), .eps = float(o.eps), .t = u.updates};
}

Adafactor adafactor(const Config& config, const Parameters& p, const Update& u) {
    Weights weights = p.weights(u.step);
    if (u.changes) weights.changes = p.changes;
    return adafactor_of(config, p, weights, u.grad_scale, u.lr, u.updates);
}

}  // namespace

size_t update_workspace_bytes(const Device& device, const Config& config, const Parameters& parameters) {
    const Update u{.lr = 0, .step = 1, .updates = 1, .changes = true};
    const size_t refresh = device.optimizer.refresh_workspace_bytes(parameters.weights(1));
    const bool factored = parameters.factored.layout.has_value();
    return std::max(refresh, factored ? device.adafactor.workspace_bytes(adafactor(config, parameters, u)) : device.adamw.workspace_bytes(adamw(config, parameters, u)));
}

void update(Context& ctx, const Config& config, const Parameters& parameters, const Update& u) {
    if (parameters.factored.layout) return update_by_adafactor(ctx, adafactor(config, parameters, u));
    ctx.device.adamw.update(ctx, adamw(config, parameters, u));
}

size_t update_traffic_bytes(const Config& config, const Parameters& p) {
    if (p.factored.layout) return adafactor_traffic_bytes(adafactor(config, p, {.lr = 0, .step = 1, .updates = 1}));
    size_t bytes = p.grad.bytes() + p.copy.bytes();
    for (const Tensor& both_ways : {p.master, p.m, p.v}) bytes += 2 * both_ways.bytes();
    return bytes;
}

}  // namespace clover
