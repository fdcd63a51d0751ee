#include "adafactor_update.h"

namespace clover {

Adafactor adafactor_of(const Config& config, const Parameters& p, const Weights& weights, Tensor grad_scale, double lr, int64_t t) {
    const OptimizerConfig& o = config.optimizer;
    return {.weights = weights, .factors = p.factored.factors, .tiles = p.factored.tiles, .state = p.factored.state, .m = p.m, .sums = p.factored.sums,
            .squares = p.factored.squares, .grad = p.grad, .grad_scale = grad_scale, .partials = p.factored.layout->partials, .lr = float(lr), .t = t,
            .parameter_scale = o.parameter_scale, .beta1 = float(o.beta1), .decay_exponent = float(o.decay_exponent), .clip = float(o.update_clip)};
}

void update_by_adafactor(Context& ctx, const Adafactor& a) {
    ctx.device.adafactor.statistics(ctx, a);
    ctx.device.adafactor.squares(ctx, a);
    ctx.device.adafactor.update(ctx, a);
}

size_t adafactor_traffic_bytes(const Adafactor& a) {
    const size_t master = a.weights.master.bytes();
    return 3 * a.grad.bytes() + (a.parameter_scale ? 3 : 2) * master + a.weights.copy.bytes() + 2 * a.m.bytes() + 3 * a.state.bytes() + 5 * a.sums.bytes() +
           2 * size_t(a.partials) * sizeof(float);
}

}  // namespace clover
