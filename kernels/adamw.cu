// AdamW on CUDA: one launch; each element is read and written once.
#include "adamw.h"

#include <cmath>

#include "optimizer.cuh"

namespace clover {
namespace {

/// Arrays and numbers that all elements of a step share.
template <class Master, class Moment>
struct Step {
    WeightsView weights;
    Moment *m, *v;
    const float *grad, *grad_scale;
    float scale, lr, beta1, beta2, eps, m_correction, v_correction;

    Step(const Adamw& a, const WeightsView& w)
        : weights(w), m(a.m.as<Moment>()), v(a.v.as<Moment>()), grad(a.grad.as<float>()), grad_scale(a.grad_scale.as<float>()), scale(0),
          lr(a.lr), beta1(a.beta1), beta2(a.beta2), eps(a.eps), m_correction(float(1 / (1 - std::pow(double(a.beta1), double(a.t))))),
          v_correction(float(1 / (1 - std::pow(double(a.beta2), double(a.t))))) {}

    template <int width>
    __device__ void run(const Segment& segment, int64_t i, Change& change) const {
        float g[width], moment[width], square[width], old[width], x[width];
        load_floats(g, grad + i);
        load_floats(moment, m + i);
        load_floats(square, v + i);
        load_floats(old, static_cast<const Master*>(weights.master) + i);
        for (int k = 0; k < width; k++) {
            g[k] *= scale;
            moment[k] = beta1 * moment[k] + (1 - beta1) * g[k];
            square[k] = beta2 * square[k] + (1 - beta2) * g[k] * g[k];
            x[k] = old[k] - lr * ((moment[k] * m_correction) / (sqrtf(square[k] * v_correction) + eps) + segment.weight_decay * old[k]);
        }
        store_floats(m + i, moment);
        store_floats(v + i, square);
        store_weights<width, Master>(weights, segment, i, old, x, change);
    }
};

template <int width, class Master, class Moment>
__global__ void __launch_bounds__(WeightsView::threads, 1) update_kernel(Step<Master, Moment> s) {
    check_segments(s.weights);
    s.scale = warp_load(s.grad_scale);
    if (std::isnan(s.scale)) return;
    for_tile<width>(s.weights, s);
}

size_t workspace_bytes(const Adamw& a) { return changes_workspace_bytes(a.weights); }

void update(Context& ctx, const Adamw& a) {
    check(a);
    const Weights& w = a.weights;
    const bool vectors = by_vectors(4, 4, {w.master, w.copy, a.m, a.v, a.grad});
    const auto start = [&]<class Master, class Moment>(Master, Moment) {
        for_weights(ctx, w, [&](const WeightsView& view) {
            launch(ctx, {optimizer_blocks(w), WeightsView::threads, optimizer_shared_bytes},
                   vectors ? update_kernel<4, Master, Moment> : update_kernel<1, Master, Moment>, Step<Master, Moment>(a, view));
        });
    };
    by_storage(w.master.dtype, [&](auto master) { by_storage(a.m.dtype, [&](auto moment) { start(master, moment); }); });
}

}  // namespace

const AdamwOps adamw_cuda = {workspace_bytes, update};

}  // namespace clover
