// AdamW on CUDA: one launch over the whole arena. A block takes 4096 neighbouring elements, finds the first segment that reaches into
// them by binary search, and goes through the segments there; each element is read and written once.
#include "adamw.h"

#include <cmath>

#include "reduce.cuh"

namespace clover {
namespace {

constexpr int tile = 4096, threads = 256;

/// Arrays and numbers that all elements of a step share.
struct Step {
    float *master, *m, *v;
    bf16* copy;  // or null
    const float *grad, *grad_scale;
    const AdamwSegment* segments;
    int64_t n, segment_count;
    float lr, beta1, beta2, eps, m_correction, v_correction;

    explicit Step(const Adamw& a)
        : master(a.master.as<float>()), m(a.m.as<float>()), v(a.v.as<float>()), copy(a.copy.present() ? a.copy.as<bf16>() : nullptr),
          grad(a.grad.as<float>()), grad_scale(a.grad_scale.as<float>()),
          segments(reinterpret_cast<const AdamwSegment*>(a.segments.as<int32_t>())), n(a.master.count()), segment_count(a.segments.shape[0]),
          lr(a.lr), beta1(a.beta1), beta2(a.beta2), eps(a.eps), m_correction(float(1 / (1 - std::pow(double(a.beta1), double(a.t))))),
          v_correction(float(1 / (1 - std::pow(double(a.beta2), double(a.t))))) {}
};

template <int width>
__device__ void update_elements(const Step& s, int64_t i, float scale, float weight_decay) {
    float g[width], m[width], v[width], w[width];
    load_floats(g, s.grad + i);
    load_floats(m, s.m + i);
    load_floats(v, s.v + i);
    load_floats(w, s.master + i);
    for (int k = 0; k < width; k++) {
        g[k] *= scale;
        m[k] = s.beta1 * m[k] + (1 - s.beta1) * g[k];
        v[k] = s.beta2 * v[k] + (1 - s.beta2) * g[k] * g[k];
        w[k] -= s.lr * ((m[k] * s.m_correction) / (sqrtf(v[k] * s.v_correction) + s.eps) + weight_decay * w[k]);
    }
    store_floats(s.m + i, m);
    store_floats(s.v + i, v);
    store_floats(s.master + i, w);
    if (s.copy) store_floats(s.copy + i, w);
}

/// Elements [first, end) by the whole block; with width 4 in aligned fours, where they lie wholly inside.
template <int width>
__device__ void update_range(const Step& s, int64_t first, int64_t end, float scale, float weight_decay) {
    for (int64_t i = first / width * width + threadIdx.x * width; i < end; i += threads * width) {
        if (i >= first && i + width <= end)
            update_elements<width>(s, i, scale, weight_decay);
        else
            for (int64_t k = max(i, first); k < min(i + width, end); k++) update_elements<1>(s, k, scale, weight_decay);
    }
}

/// The first segment that ends behind `place`, or their count.
__device__ int64_t first_segment_behind(const Step& s, int64_t place) {
    int64_t low = 0, high = s.segment_count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (s.segments[middle].first + s.segments[middle].count > place)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/// Stops the kernel where a segment does not lie in the arena; each is looked at by one thread of the grid.
__device__ void check_segments(const Step& s) {
    for (int64_t k = int64_t(blockIdx.x) * threads + threadIdx.x; k < s.segment_count; k += int64_t(gridDim.x) * threads) {
        const AdamwSegment segment = s.segments[k];
        if (segment.first < 0 || segment.count < 0 || segment.count > s.n - segment.first) ptx::trap();
    }
}

template <int width>
__global__ void __launch_bounds__(threads, 1) update_kernel(Step s) {
    check_segments(s);
    const float scale = warp_load(s.grad_scale);
    if (std::isnan(scale)) return;
    const int64_t begin = int64_t(blockIdx.x) * tile, end = min(s.n, begin + tile);
    int64_t* const shared = shared_memory<int64_t>();
    if (threadIdx.x == 0) *shared = first_segment_behind(s, begin);
    __syncthreads();
    for (int64_t k = *shared; k < s.segment_count; k++) {
        const AdamwSegment* const segment = s.segments + k;
        const int64_t first = warp_load(&segment->first), behind = first + warp_load(&segment->count);
        if (first >= end) return;
        update_range<width>(s, max(begin, first), min(end, behind), scale, warp_load(&segment->weight_decay));
    }
}

void update(Context& ctx, const Adamw& a) {
    check(a);
    // One block at least, which looks at the segments.
    const Launch l{std::max(1u, blocks_for(a.master.count(), tile)), threads, sizeof(int64_t)};
    launch(ctx, l, by_vectors(4, 4, {a.master, a.m, a.v, a.grad, a.copy}) ? update_kernel<4> : update_kernel<1>, Step(a));
}

}  // namespace

const AdamwOps adamw_cuda = {update};

}  // namespace clover
