// How the optimizers go through the parameters on CUDA: one launch over the whole arena. A block takes `tile` neighbouring elements, finds the first
// segment that reaches into them by binary search, and goes through the segments there. What happened to a segment in a block is summed in the block,
// and a second kernel adds these parts in order.
#pragma once
#include "optimizer.h"
#include "random.h"
#include "reduce.cuh"

namespace clover {

/// Weights as the kernels take them.
struct WeightsView {
    static constexpr int tile = 4096, threads = 256;
    void* master;
    void* copy;  // or null
    Dtype copy_dtype;
    const Segment* segments;
    Change* parts;  // [block + segment], or null
    int64_t n, segment_count;
    bool stochastic;
    uint64_t seed;
    uint32_t step;

    WeightsView(const Weights& w, Change* parts_)
        : master(w.master.data), copy(w.copy.data), copy_dtype(w.copy.dtype),
          segments(reinterpret_cast<const Segment*>(w.segments.as<int32_t>())), parts(parts_), n(w.master.count()), segment_count(w.segments.shape[0]),
          stochastic(w.rounding == Rounding::stochastic), seed(w.seed), step(uint32_t(w.step)) {}
};

/// Blocks of a launch: one at least, which looks at the segments.
inline unsigned optimizer_blocks(const Weights& w) { return std::max(1u, blocks_for(w.master.count(), WeightsView::tile)); }
inline int64_t change_parts(const Weights& w) { return optimizer_blocks(w) + w.segments.shape[0]; }
inline size_t changes_workspace_bytes(const Weights& w) {
    return w.changes.present() ? Workspace::padded(size_t(change_parts(w)) * sizeof(Change)) : 0;
}

/// What rounds elements e … e + width − 1 of a parameter.
template <int width>
__device__ inline void rounding_noise(const RoundingKey& key, int64_t e, uint32_t (&noise)[width]) {
    if (width == 4 && e % 4 == 0) {
        const std::array<uint32_t, 2> words = key.four(uint64_t(e));
        for (int k = 0; k < width; k++) noise[k] = (k < 2 ? words[0] : words[1]) >> 16 * (k % 2) & 0xffffu;
    } else {
        for (int k = 0; k < width; k++) noise[k] = key.noise(uint64_t(e + k));
    }
}

/// Stores new values of elements i … i + width − 1 in place of the old, rounded as the recipe says, and counts what happened.
template <int width, class Master>
__device__ inline void store_weights(const WeightsView& w, const Segment& s, int64_t i, const float (&old)[width], float (&x)[width], Change& change) {
    constexpr bool low_master = dtype_of<Master> == Dtype::bf16;
    uint32_t noise[width] = {};
    if (w.stochastic) rounding_noise(RoundingKey{w.seed, s.key, w.step}, s.element + (i - s.first), noise);
    float low[width];
    for (int k = 0; k < width; k++) low[k] = to_float(w.stochastic ? to_bf16_stochastic(x[k], noise[k]) : to_bf16(x[k]));
    for (int k = 0; k < width; k++)
        if (low_master || s.coarse) x[k] = low[k];
    store_floats(static_cast<Master*>(w.master) + i, x);
    if (w.copy && w.copy_dtype == Dtype::bf16) store_floats(static_cast<bf16*>(w.copy) + i, low);
    if (w.copy && w.copy_dtype == Dtype::f16) store_floats(static_cast<f16*>(w.copy) + i, x);
    for (int k = 0; k < width; k++) {
        const float step = x[k] - old[k];
        change.unchanged += x[k] == old[k] ? 1.0f : 0.0f;
        change.step_squares += step * step;
        change.weight_squares += old[k] * old[k];
    }
}

/// Calls f.template run<width>(segment, i, change) for the elements [first, end) by the whole block; width 4 in aligned fours, where they lie wholly inside.
template <int width, class F>
__device__ inline void for_elements(const Segment& s, int64_t first, int64_t end, Change& change, F& f) {
    for (int64_t i = first / width * width + threadIdx.x * width; i < end; i += WeightsView::threads * width) {
        if (i >= first && i + width <= end)
            f.template run<width>(s, i, change);
        else
            for (int64_t k = max(i, first); k < min(i + width, end); k++) f.template run<1>(s, k, change);
    }
}

/// The first segment that ends behind `place`, or their count.
__device__ inline int64_t first_segment_behind(const WeightsView& w, int64_t place) {
    int64_t low = 0, high = w.segment_count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (w.segments[middle].first + w.segments[middle].count > place)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/// Stops the kernel where a segment does not lie in the arena; each is looked at by one thread of the grid.
__device__ inline void check_segments(const WeightsView& w) {
    for (int64_t k = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; k < w.segment_count; k += int64_t(gridDim.x) * blockDim.x)
        if (!fits(w.segments[k], w.n)) ptx::trap();
}

/// What a block keeps in shared memory while it goes through its tile.
struct TileShared {
    int64_t first_segment;
    Segment segment;
    float reduction[reduction_floats];
};
constexpr size_t optimizer_shared_bytes = sizeof(TileShared);

/// All elements of all segments that lie in the tile of this block. Shared memory: optimizer_shared_bytes.
template <int width, class F>
__device__ inline void for_tile(const WeightsView& w, F& f) {
    const int64_t begin = int64_t(blockIdx.x) * WeightsView::tile, end = min(w.n, begin + WeightsView::tile);
    TileShared& shared = *shared_memory<TileShared>();
    if (threadIdx.x == 0) shared.first_segment = first_segment_behind(w, begin);
    __syncthreads();
    for (int64_t k = shared.first_segment; k < w.segment_count; k++) {
        if (threadIdx.x == 0) {
            shared.segment = w.segments[k];
            shared.segment.index = uint32_t(k);
        }
        __syncthreads();
        const Segment& s = shared.segment;
        if (s.first >= end) return;
        Change change;
        for_elements<width>(s, max(begin, s.first), min(end, s.first + s.count), change, f);
        if (w.parts) {
            float sums[3] = {change.unchanged, change.step_squares, change.weight_squares};
            BlockGroup::sum(sums, shared.reduction);
            if (threadIdx.x == 0) w.parts[blockIdx.x + k] = {sums[0], sums[1], sums[2]};
        }
        __syncthreads();
    }
}

/// Adds up the parts of each segment (optimizer.cu).
void sum_changes(Context& ctx, const Weights& w, const Change* parts);

/// Calls start(view) to launch a kernel that goes through all tiles, and gathers the changes where they are asked for.
template <class Start>
void for_weights(Context& ctx, const Weights& w, Start&& start) {
    const WorkspaceScope scope(ctx.workspace);
    Change* const parts = w.changes.present() ? ctx.workspace.take<Change>(change_parts(w)) : nullptr;
    // Where the optimizer changes nothing, it writes none.
    if (parts) ctx.device.elementwise.fill(ctx, Tensor(parts, Dtype::f32, {change_parts(w), 3}), 0);
    start(WeightsView(w, parts));
    if (parts) sum_changes(ctx, w, parts);
}

}  // namespace clover
