// Parameters as a step leaves them, without a step; and the sums of what a step did to each parameter.
#include "optimizer.cuh"

namespace clover {
namespace {

constexpr int threads = 128;

/// A warp for each segment.
__global__ void __launch_bounds__(threads) sum_changes_kernel(float* changes, const Change* parts, const Segment* segments, int64_t segment_count) {
    const int64_t k = (int64_t(blockIdx.x) * threads + threadIdx.x) / warp_size;
    if (k >= segment_count) return;
    const int64_t first = warp_load(&segments[k].first), count = warp_load(&segments[k].count);
    float sums[3] = {};
    if (count > 0)
        for (int64_t b = first / WeightsView::tile + threadIdx.x % warp_size; b <= (first + count - 1) / WeightsView::tile; b += warp_size) {
            const Change c = parts[b + k];
            sums[0] += c.unchanged, sums[1] += c.step_squares, sums[2] += c.weight_squares;
        }
    for (int i = 0; i < 3; i++) {
        const float sum = warp_sum(sums[i]);
        if (threadIdx.x % warp_size == 0) changes[k * 3 + i] = sum;
    }
}

template <class Master>
struct Same {
    WeightsView weights;
    template <int width>
    __device__ void run(const Segment& segment, int64_t i, Change& change) const {
        float old[width], x[width];
        load_floats(old, static_cast<const Master*>(weights.master) + i);
        for (int k = 0; k < width; k++) x[k] = old[k];
        store_weights<width, Master>(weights, segment, i, old, x, change);
    }
};

template <int width, class Master>
__global__ void __launch_bounds__(WeightsView::threads, 1) refresh_kernel(Same<Master> same) {
    check_segments(same.weights);
    for_tile<width>(same.weights, same);
}

void refresh(Context& ctx, const Weights& w) {
    check(w);
    const bool vectors = by_vectors(4, 4, {w.master, w.copy});
    by_storage(w.master.dtype, [&]<class Master>(Master) {
        for_weights(ctx, w, [&](const WeightsView& view) {
            launch(ctx, {optimizer_blocks(w), WeightsView::threads, optimizer_shared_bytes}, vectors ? refresh_kernel<4, Master> : refresh_kernel<1, Master>,
                   Same<Master>{view});
        });
    });
}

}  // namespace

const OptimizerOps optimizer_cuda = {changes_workspace_bytes, refresh};

void sum_changes(Context& ctx, const Weights& w, const Change* parts) {
    const int64_t count = w.segments.shape[0];
    launch(ctx, {blocks_for(count * warp_size, threads), threads}, sum_changes_kernel, w.changes.as<float>(), parts,
           reinterpret_cast<const Segment*>(w.segments.as<int32_t>()), count);
}

}  // namespace clover
