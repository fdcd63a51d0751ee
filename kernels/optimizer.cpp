// Parameters as a step leaves them, without a step.
#include "optimizer.h"

#include "optimizer_range.h"

namespace clover {
namespace {

void refresh(Context& ctx, const Weights& w) {
    check(w);
    by_weight_dtypes(w, [&]<class Master, class Copy>(Master*, Copy*) {
        for_segments(ctx, w, [&](const Segment& s, int64_t first, int64_t count, Change* change) {
            update_range<Master, Copy>(w, s, first, count, change, [](int64_t, simd::f32x16 old, auto) { return old; });
        });
    });
}

}  // namespace

const OptimizerOps optimizer_cpu = {for_segments_workspace_bytes, refresh};

}  // namespace clover
