// Adafactor on CUDA. The three calls are: row and column sums of tiles, and their sum in order; R, C and their factors, a block for each parameter, then
// Σ u² in one launch over the arenas; the update in one launch. So the gradient is read three times, the weights once (with parameter_scale twice).
#include "adafactor.h"

#include <algorithm>

#include "optimizer.cuh"

namespace clover {
namespace {

constexpr int threads = 256, warps = threads / warp_size;
constexpr int columns_per_lane = int(Factors::slab) / warp_size;

/// What the kernels share.
struct View {
    const Segment* segments;
    const Factors* factors;
    float *state, *sums;
    const float *grad, *grad_scale;
    int64_t segment_count;
    AdafactorStep step;
    explicit View(const Adafactor& a)
        : segments(reinterpret_cast<const Segment*>(a.weights.segments.as<int32_t>())), factors(reinterpret_cast<const Factors*>(a.factors.as<int32_t>())),
          state(a.state.as<float>()), sums(a.sums.present() ? a.sums.as<float>() : nullptr), grad(a.grad.as<float>()),
          grad_scale(a.grad_scale.as<float>()), segment_count(a.weights.segments.shape[0]), step(a) {}
};

// ---- statistics ----------------------------------------------------------------------------------------------------------------

/// Row and column sums of g² of one tile: a warp for every eighth row.
__global__ void __launch_bounds__(threads) tile_kernel(View v, const FactorTile* tiles, float* partials) {
    const float scale = warp_load(v.grad_scale);
    if (std::isnan(scale)) return;
    const FactorTile tile = tiles[blockIdx.x];
    const Segment s = v.segments[tile.segment];
    const Factors f = v.factors[tile.segment];
    const int lane = int(threadIdx.x) % warp_size, warp = int(threadIdx.x) / warp_size;
    const int64_t row = f.first_row + tile.row_tile * f.tile_rows(), end_row = min(f.first_row + f.covered_rows, row + f.tile_rows());
    const int64_t column = tile.slab * Factors::slab, columns = min(f.columns - column, int64_t{Factors::slab});
    float column_sums[columns_per_lane] = {};
    for (int64_t r = row + warp; r < end_row; r += warps) {
        // Of the columns of this row in the slab, those that are the segment's.
        const int64_t before = s.element - r * f.columns - column, first = max(int64_t{0}, before), end = min(columns, before + s.count);
        const float* const g = v.grad + s.first - before;
        float row_sum = 0;
#pragma unroll
        for (int k = 0; k < columns_per_lane; k++) {
            const int64_t c = k * warp_size + lane;
            if (c < first || c >= end) continue;
            const float x = g[c] * scale;
            column_sums[k] += x * x;
            row_sum += x * x;
        }
        row_sum = warp_sum(row_sum);
        if (lane == 0) partials[f.partials + tile.slab * f.covered_rows + (r - f.first_row)] = row_sum;
    }
    float(*const shared)[Factors::slab] = shared_memory<float[Factors::slab]>();
#pragma unroll
    for (int k = 0; k < columns_per_lane; k++) shared[warp][k * warp_size + lane] = column_sums[k];
    __syncthreads();
    for (int64_t c = threadIdx.x; c < columns; c += threads) {
        float sum = 0;
        for (int w = 0; w < warps; w++) sum += shared[w][c];
        partials[f.partials + f.slabs * f.covered_rows + tile.row_tile * f.columns + column + c] = sum;
    }
}

/// The segment that element i of the sums belongs to.
__device__ int64_t owner_of_sum(const View& v, int64_t i) {
    int64_t low = 0, high = v.segment_count - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (v.factors[middle].sums <= i)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/// Each sum = the tiles' partial sums, added in order; a thread for each.
__global__ void __launch_bounds__(threads) fold_kernel(View v, const float* partials, int64_t count) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    const float scale = warp_load(v.grad_scale);
    if (std::isnan(scale) || i >= count) return;
    const Factors f = v.factors[owner_of_sum(v, i)];
    const int64_t row = i - f.sums - f.first_row, column = i - f.sums - f.rows;
    double sum = 0;
    if (column >= 0) {
        for (int64_t tile = 0; tile < f.row_tiles; tile++) sum += double(partials[f.partials + f.slabs * f.covered_rows + tile * f.columns + column]);
    } else if (row >= 0 && row < f.covered_rows) {
        for (int64_t slab = 0; slab < f.slabs; slab++) sum += double(partials[f.partials + slab * f.covered_rows + row]);
    }
    v.sums[i] = float(sum);
}

void statistics(Context& ctx, const Adafactor& a) {
    check(a);
    if (!a.tiles.present()) return;
    const WorkspaceScope scope(ctx.workspace);
    float* const partials = ctx.workspace.take<float>(a.partials);
    const int64_t sums = a.sums.count();
    launch(ctx, {blocks_for(a.tiles.shape[0], 1), threads, sizeof(float[warps][Factors::slab])}, tile_kernel, View(a),
           reinterpret_cast<const FactorTile*>(a.tiles.as<int32_t>()), partials);
    launch(ctx, {blocks_for(sums, threads), threads}, fold_kernel, View(a), partials, sums);
}

// ---- squares -------------------------------------------------------------------------------------------------------------------

/// R and C of one parameter, and in place of its sums √(mean(R) / R_i) and √(1 / C_j), whose product is u / g.
__global__ void __launch_bounds__(threads) factors_kernel(View v) {
    const float scale = warp_load(v.grad_scale);
    const Factors f = v.factors[blockIdx.x];
    if (std::isnan(scale) || !f.factored()) return;
    float *const state = v.state + f.state, *const sums = v.sums + f.sums;
    float total[1] = {};
    for (int64_t r = threadIdx.x; r < f.rows; r += threads) {
        state[r] = v.step.decayed(state[r], sums[r] / float(f.columns) + v.step.eps1);
        total[0] += state[r];
    }
    BlockGroup::sum(total, shared_memory<float>());
    const float mean = total[0] / float(f.rows);
    for (int64_t r = threadIdx.x; r < f.rows; r += threads) sums[r] = sqrtf(mean / state[r]);
    for (int64_t c = f.rows + threadIdx.x; c < f.rows + f.columns; c += threads) {
        state[c] = v.step.decayed(state[c], sums[c] / float(f.rows) + v.step.eps1);
        sums[c] = 1 / sqrtf(state[c]);
    }
}

/// u / g of elements i … i + width − 1 of a factored segment.
template <int width>
__device__ inline void load_factors(const View& v, const Factors& f, int64_t element, float (&factor)[width]) {
    // Division of 32-bit numbers takes a fifth of the time.
    int64_t row = element >> 32 || f.columns >> 32 ? element / f.columns : uint32_t(element) / uint32_t(f.columns), column = element - row * f.columns;
    const float *const rows = v.sums + f.sums, *const columns = rows + f.rows;
    for (int k = 0; k < width; k++) {
        factor[k] = rows[row] * columns[column];
        if (++column == f.columns) column = 0, row++;
    }
}

/// u of elements i … i + width − 1; `fresh`: V is still the one before.
template <int width>
__device__ inline void load_update(const View& v, const Factors& f, const Segment& s, int64_t i, bool fresh, float (&u)[width]) {
    load_floats(u, v.grad + i);
    for (int k = 0; k < width; k++) u[k] *= v.step.scale;
    if (f.factored()) {
        float factor[width];
        load_factors(v, f, s.element + (i - s.first), factor);
        for (int k = 0; k < width; k++) u[k] *= factor[k];
        return;
    }
    float* const second = v.state + f.state + (i - s.first);
    for (int k = 0; k < width; k++) {
        if (fresh) second[k] = v.step.decayed(second[k], u[k] * u[k] + v.step.eps1);
        u[k] = u[k] / sqrtf(second[k]);
    }
}

template <class Master>
struct Squares {
    WeightsView weights;
    View view;
    template <int width>
    __device__ void run(const Segment& s, int64_t i, Change& change) const {
        float u[width], w[width];
        load_update(view, view.factors[s.index], s, i, true, u);
        for (int k = 0; k < width; k++) change.step_squares += u[k] * u[k];
        if (!view.step.parameter_scale) return;
        load_floats(w, static_cast<const Master*>(weights.master) + i);
        for (int k = 0; k < width; k++) change.weight_squares += w[k] * w[k];
    }
};

// ---- update --------------------------------------------------------------------------------------------------------------------

template <class Master>
struct Update {
    WeightsView weights;
    View view;
    float* m;
    const Change* squares;
    template <int width>
    __device__ void run(const Segment& s, int64_t i, Change& change) const {
        const AdafactorStep& step = view.step;
        const Factors& f = view.factors[s.index];
        const float rate = step.rate(f, squares[s.index]), decay = step.lr * s.weight_decay;
        float u[width], old[width], x[width], moment[width];
        load_update(view, f, s, i, false, u);
        load_floats(old, static_cast<const Master*>(weights.master) + i);
        if (m) load_floats(moment, m + i);
        for (int k = 0; k < width; k++) {
            u[k] *= rate;
            if (m) u[k] = moment[k] = step.beta1 * moment[k] + (1 - step.beta1) * u[k];
            x[k] = old[k] - u[k] - decay * old[k];
        }
        if (m) store_floats(m + i, moment);
        store_weights<width, Master>(weights, s, i, old, x, change);
    }
};

/// Goes through all elements by Squares or Update.
template <int width, class F>
__global__ void __launch_bounds__(WeightsView::threads, 1) elements_kernel(F f) {
    check_segments(f.weights);
    f.view.step.scale = warp_load(f.view.grad_scale);
    if (std::isnan(f.view.step.scale)) return;
    for_tile<width>(f.weights, f);
}

template <class F>
void launch_elements(Context& ctx, const Adafactor& a, const F& f) {
    const bool vectors = by_vectors(4, 4, {a.weights.master, a.weights.copy, a.m, a.grad});
    launch(ctx, {optimizer_blocks(a.weights), WeightsView::threads, optimizer_shared_bytes}, vectors ? elements_kernel<4, F> : elements_kernel<1, F>, f);
}

void squares(Context& ctx, const Adafactor& a) {
    check(a);
    if (a.sums.present()) launch(ctx, {blocks_for(a.weights.segments.shape[0], 1), threads, reduction_floats * sizeof(float)}, factors_kernel, View(a));
    by_storage(a.weights.master.dtype, [&]<class Master>(Master) {
        for_weights(ctx, with_squares(a), [&](const WeightsView& view) { launch_elements(ctx, a, Squares<Master>{view, View(a)}); });
    });
}

void update(Context& ctx, const Adafactor& a) {
    check(a);
    by_storage(a.weights.master.dtype, [&]<class Master>(Master) {
        for_weights(ctx, a.weights, [&](const WeightsView& view) {
            launch_elements(ctx, a, Update<Master>{view, View(a), a.m.present() ? a.m.as<float>() : nullptr, reinterpret_cast<const Change*>(a.squares.as<float>())});
        });
    });
}

size_t workspace_bytes(const Adafactor& a) { return std::max(partials_bytes(a), changes_workspace_bytes(with_squares(a))); }

}  // namespace

const AdafactorOps adafactor_cuda = {workspace_bytes, statistics, squares, update};

}  // namespace clover
