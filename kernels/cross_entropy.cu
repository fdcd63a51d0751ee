// Softmax cross-entropy on CUDA, a row per block. The first pass over a row keeps a running maximum and sum in each thread and, where the
// row fits into the block's shared memory, the row itself: then it is read from global memory once and written once. Longer rows (above
// about 57,000 columns on sm_90, 40,000 on sm_80) are read again by the second pass, which writes the gradient; as the few hundred rows
// under way fit into the second-level cache, it finds them there.
//
// Rows are cut into fours where accesses of 16 bytes may lie, which is not at their first element unless V is a multiple of 4: four q
// covers the columns [4 q − shift, 4 q − shift + 4). The same thread has the same fours in both passes.
#include "cross_entropy.h"

#include <limits>

#include "reduce.cuh"

namespace clover {
namespace {

constexpr int at_once = 4;  // fours that a thread asks for before it uses the first

struct Softmax {
    float maximum, sum;  // sum of exp(logit − maximum)
};

/// A row of V columns in fours.
struct Fours {
    int64_t V, count;
    int shift;
    __device__ Fours(const float* row, int64_t V_) : V(V_), shift(int(reinterpret_cast<uintptr_t>(row) / sizeof(float) % 4)) {
        count = (V + shift + 3) / 4;
    }
    __device__ int64_t column(int64_t four) const { return 4 * four - shift; }

    template <class T>
    __device__ bool whole(const T* p, int64_t column) const {
        return column >= 0 && column + 4 <= V && reinterpret_cast<uintptr_t>(p + column) % (4 * sizeof(T)) == 0;
    }
    /// −∞ outside the row.
    __device__ void load(float (&to)[4], const float* row, int64_t four) const {
        const int64_t first = column(four);
        if (whole(row, first))
            load_floats(to, row + first);
        else
            for (int k = 0; k < 4; k++) to[k] = first + k >= 0 && first + k < V ? row[first + k] : -INFINITY;
    }
    template <class D>
    __device__ void store(D* row, int64_t four, const float (&from)[4]) const {
        const int64_t first = column(four);
        if (whole(row, first))
            store_floats(row + first, from);
        else
            for (int k = 0; k < 4; k++)
                if (first + k >= 0 && first + k < V) row[first + k] = from_float<D>(from[k]);
    }
};

/// The row's softmax, the same in every thread; the row is kept at `kept` (count · 4), if that is given.
// The maxima begin at the least finite number: −∞ − −∞ would be NaN where a logit is masked. fmaxf passes over NaN, which the sum keeps.
__device__ Softmax softmax_of(const float* row, const Fours& fours, float* kept, float* reduction) {
    Softmax s{std::numeric_limits<float>::lowest(), 0};
    const int step = int(blockDim.x);
    for (int64_t first = threadIdx.x; first < fours.count; first += at_once * step) {
        float x[at_once][4];
#pragma unroll
        for (int k = 0; k < at_once; k++)
            if (first + k * step < fours.count) fours.load(x[k], row, first + k * step);
#pragma unroll
        for (int k = 0; k < at_once; k++) {
            if (first + k * step >= fours.count) continue;
            if (kept) store_floats(kept + 4 * (first + k * step), x[k]);
            const float maximum = fmaxf(fmaxf(fmaxf(x[k][0], x[k][1]), fmaxf(x[k][2], x[k][3])), s.maximum);
            if (maximum > s.maximum) s = {maximum, s.sum * expf(s.maximum - maximum)};
            s.sum += (expf(x[k][0] - maximum) + expf(x[k][1] - maximum)) + (expf(x[k][2] - maximum) + expf(x[k][3] - maximum));
        }
    }
    const float maximum = BlockGroup::max(s.maximum, reduction);
    float sum[1] = {s.sum * expf(s.maximum - maximum)};
    BlockGroup::sum(sum, reduction);
    return {maximum, sum[0]};
}

__device__ float loss_of(Softmax s, float at_target) { return float(log(double(s.sum)) + (double(s.maximum) - double(at_target))); }

/// Four columns of the gradient from their logits.
__device__ void gradient(float (&x)[4], int64_t column, int64_t target, Softmax s, float scale) {
    const float factor = scale / s.sum;
    for (int k = 0; k < 4; k++) x[k] = expf(x[k] - s.maximum) * factor - (column + k == target ? scale : 0.0f);
}

template <class D>
struct Rows {
    float* loss;
    D* dlogits;  // or null
    const float* logits;
    const int32_t* targets;
    int64_t V;
    float scale;
    bool keep_row;  // in shared memory
};

/// The gradient of a row, from the row kept in shared memory or else from global memory.
template <class D>
__device__ void write_gradient(D* dlogits, const float* logits, const float* kept, const Fours& fours, int64_t target, Softmax s, float scale) {
    const int step = int(blockDim.x);
    for (int64_t first = threadIdx.x; first < fours.count; first += at_once * step) {
        float x[at_once][4];
#pragma unroll
        for (int k = 0; k < at_once; k++) {
            const int64_t q = first + k * step;
            if (q >= fours.count) continue;
            if (kept)
                load_floats(x[k], kept + 4 * q);
            else
                fours.load(x[k], logits, q);
        }
#pragma unroll
        for (int k = 0; k < at_once; k++) {
            const int64_t q = first + k * step;
            if (q >= fours.count) continue;
            gradient(x[k], fours.column(q), target, s, scale);
            fours.store(dlogits, q, x[k]);
        }
    }
}

template <class D>
__global__ void __launch_bounds__(1024) run_kernel(Rows<D> r) {
    const int64_t row = blockIdx.x;
    const int32_t target = warp_load(r.targets + row);
    const float* const logits = r.logits + row * r.V;
    D* const dlogits = r.dlogits ? r.dlogits + row * r.V : nullptr;
    const Fours fours(logits, r.V);
    if (target >= r.V) ptx::trap();
    if (target < 0) {
        const float zeros[4] = {};
        for (int64_t q = threadIdx.x; dlogits && q < fours.count; q += blockDim.x) fours.store(dlogits, q, zeros);
        if (threadIdx.x == 0) r.loss[row] = 0;
        return;
    }
    float* const reduction = shared_memory<float>();
    float* const kept = r.keep_row ? reduction + reduction_floats : nullptr;
    // Read before the barriers of the sums: the gradient may take the logit's place.
    const float at_target = threadIdx.x == 0 ? logits[target] : 0.0f;
    const Softmax s = softmax_of(logits, fours, kept, reduction);
    if (threadIdx.x == 0) r.loss[row] = loss_of(s, at_target);
    if (dlogits) write_gradient(dlogits, logits, kept, fours, target, s, r.scale);
}

/// Threads for a row, by V alone: they decide the order of the sums.
unsigned row_threads(int64_t V) { return V <= 1024 ? 128 : V <= 8192 ? 256 : V <= 32768 ? 512 : 1024; }

constexpr size_t reduction_bytes = reduction_floats * sizeof(float);

void run(Context& ctx, const CrossEntropy& c) {
    check(c);
    const int64_t R = c.logits.shape[0], V = c.logits.shape[1];
    by_dtype(c.dlogits.present() ? c.dlogits.dtype : Dtype::f32, [&](auto d) {
        using D = decltype(d);
        const size_t row_bytes = (size_t(V) + 6) / 4 * 16;
        const bool keep = c.dlogits.present() && reduction_bytes + row_bytes <= cuda_state(ctx).shared_limit;
        const Rows<D> rows{.loss = c.loss.as<float>(), .dlogits = c.dlogits.present() ? c.dlogits.as<D>() : nullptr, .logits = c.logits.as<float>(),
                           .targets = c.targets.as<int32_t>(), .V = V, .scale = c.scale, .keep_row = keep};
        launch(ctx, {blocks_for(R, 1), row_threads(V), reduction_bytes + (keep ? row_bytes : 0)}, run_kernel<D>, rows);
    });
}

// ---- a vocabulary split over ranks ---------------------------------------------------------------------------------------------

__global__ void __launch_bounds__(1024)
    statistics_kernel(float* maximum, float* sum, float* at_target, const float* logits, const int32_t* targets, int64_t first, int64_t V) {
    const int64_t row = blockIdx.x;
    const float* const mine = logits + row * V;
    const Softmax s = softmax_of(mine, Fours(mine, V), nullptr, shared_memory<float>());
    if (threadIdx.x > 0) return;
    const int64_t target = targets[row] - first;
    maximum[row] = s.maximum;
    sum[row] = s.sum;
    at_target[row] = target >= 0 && target < V ? mine[target] : 0.0f;
}

void statistics(Context& ctx, const CrossEntropyShard& c) {
    check(c);
    const int64_t V = c.logits.shape[1];
    launch(ctx, {blocks_for(c.logits.shape[0], 1), row_threads(V), reduction_bytes}, statistics_kernel, c.maximum.as<float>(), c.sum.as<float>(),
           c.target.as<float>(), c.logits.as<float>(), c.targets.as<int32_t>(), c.first, V);
}

constexpr int finish_threads = 256, finish_columns = finish_threads * at_once * 4;

__global__ void loss_kernel(float* loss, const float* maximum, const float* sum, const float* at_target, const int32_t* targets, int64_t R) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row < R) loss[row] = targets[row] < 0 ? 0.0f : loss_of({maximum[row], sum[row]}, at_target[row]);
}

/// finish_columns of a row.
template <class D>
__global__ void __launch_bounds__(finish_threads)
    shard_gradient_kernel(Rows<D> r, const float* maximum, const float* sum, int64_t first_column, unsigned parts) {
    const int64_t row = blockIdx.x / parts, begin = blockIdx.x % parts * (finish_columns / 4) + threadIdx.x;
    const int32_t target = warp_load(r.targets + row);
    const Softmax s{warp_load(maximum + row), warp_load(sum + row)};
    const float* const logits = r.logits + row * r.V;
    const Fours fours(logits, r.V);
    float x[at_once][4] = {};
#pragma unroll
    for (int k = 0; k < at_once; k++)
        if (target >= 0 && begin + k * finish_threads < fours.count) fours.load(x[k], logits, begin + k * finish_threads);
#pragma unroll
    for (int k = 0; k < at_once; k++) {
        const int64_t q = begin + k * finish_threads;
        if (q >= fours.count) continue;
        if (target >= 0) gradient(x[k], fours.column(q), target - first_column, s, r.scale);
        fours.store(r.dlogits + row * r.V, q, x[k]);
    }
}

void finish(Context& ctx, const CrossEntropyShard& c) {
    check_finish(c);
    const int64_t R = c.logits.shape[0], V = c.logits.shape[1];
    launch(ctx, {blocks_for(R, 256), 256}, loss_kernel, c.loss.as<float>(), c.maximum.as<float>(), c.sum.as<float>(), c.target.as<float>(),
           c.targets.as<int32_t>(), R);
    if (!c.dlogits.present()) return;
    by_dtype(c.dlogits.dtype, [&](auto d) {
        using D = decltype(d);
        const Rows<D> rows{.loss = c.loss.as<float>(), .dlogits = c.dlogits.as<D>(), .logits = c.logits.as<float>(), .targets = c.targets.as<int32_t>(),
                           .V = V, .scale = c.scale, .keep_row = false};
        const unsigned parts = blocks_for(V + 3, finish_columns);  // a row may begin up to three columns into a four
        launch(ctx, {blocks_for(R * parts, 1), finish_threads}, shard_gradient_kernel<D>, rows, c.maximum.as<float>(), c.sum.as<float>(), c.first,
               parts);
    });
}

}  // namespace

const CrossEntropyOps cross_entropy_cuda = {run, statistics, finish};

}  // namespace clover
