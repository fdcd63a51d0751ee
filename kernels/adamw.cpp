// AdamW on the CPU: each element is read and written once.
#include "adamw.h"

#include <cmath>

#include "optimizer_range.h"

namespace clover {
namespace {
using namespace simd;

/// The numbers that all elements of a step share.
struct Step {
    float grad_scale, lr, beta1, beta2, eps, m_correction, v_correction;
    explicit Step(const Adamw& a)
        : grad_scale(*a.grad_scale.as<float>()), lr(a.lr), beta1(a.beta1), beta2(a.beta2), eps(a.eps),
          m_correction(float(1 / (1 - std::pow(double(a.beta1), double(a.t))))),
          v_correction(float(1 / (1 - std::pow(double(a.beta2), double(a.t))))) {}
};

template <class Master, class Copy, class Moment>
void update_part(const Adamw& a, const Step s, const Segment& segment, int64_t first, int64_t count, Change* change) {
    Moment *const m = a.m.as<Moment>(), *const v = a.v.as<Moment>();
    const float* const grad = a.grad.as<float>();
    const float weight_decay = segment.weight_decay;
    update_range<Master, Copy>(a.weights, segment, first, count, change, [=](int64_t i, f32x16 w, auto lanes) {
        const f32x16 g = load(grad + i, lanes) * s.grad_scale;
        const f32x16 m_new = s.beta1 * load(m + i, lanes) + (1 - s.beta1) * g;
        const f32x16 v_new = s.beta2 * load(v + i, lanes) + (1 - s.beta2) * g * g;
        store(m + i, m_new, lanes);
        store(v + i, v_new, lanes);
        return w - s.lr * ((m_new * s.m_correction) / (sqrt(v_new * s.v_correction) + s.eps) + weight_decay * w);
    });
}

size_t workspace_bytes(const Adamw& a) { return for_segments_workspace_bytes(a.weights); }

void update(Context& ctx, const Adamw& a) {
    check(a);
    const Step step(a);
    if (std::isnan(step.grad_scale)) return clear_changes(a.weights);
    by_weight_dtypes(a.weights, [&]<class Master, class Copy>(Master*, Copy*) {
        by_storage(a.m.dtype, [&](auto moment) {
            for_segments(ctx, a.weights, [&](const Segment& s, int64_t first, int64_t count, Change* change) {
                update_part<Master, Copy, decltype(moment)>(a, step, s, first, count, change);
            });
        });
    });
}

}  // namespace

const AdamwOps adamw_cpu = {workspace_bytes, update};

}  // namespace clover
