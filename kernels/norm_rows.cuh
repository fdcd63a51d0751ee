// The forward of the norms on CUDA, and of whatever makes the rows that are normed: a residual addition (norm.cu), an embedding lookup
// (embedding.cu). The formulas are those of norm.h.
//
// A group of threads, a warp for up to 1024 columns, else the block, takes one row after the other. A row is read from global memory
// once: each thread keeps its columns of s in shared memory, which only it reads again, so that no barrier is needed for them. Weight and
// bias are kept there for all rows of the block. What is too large for that is read again from global memory instead; the bits are the same.
#pragma once
#include <type_traits>

#include "norm.h"
#include "reduce.cuh"

namespace clover {

/// What becomes of the rows of s (N, C).
template <class A>
struct NormedRows {
    int64_t N;
    int C;
    A* sum;           // receives s; null: s is there already, as the source's first term
    A* y = nullptr;   // null: no norm
    bool layernorm = true;
    float eps = 0;
    AnyFloats weight = {}, bias = {};
    float *mean = nullptr, *rstd = nullptr;
    bool keep_rows = false, keep_weights = false;  // in shared memory
};

/// One row as a source gives it: s = first + second, or first alone.
template <class T, class Second>
struct RowTerms {
    const T* first;
    Second second;  // Floats or AnyFloats
};

struct NormStatistics {
    float mean, rstd;
};

/// Mean and variance of a row by the corrected two-pass algorithm (see norm.cpp); each thread reads the columns that it wrote.
template <class Group, int width, class A>
__device__ NormStatistics norm_statistics(const A* s, int C, bool layernorm, float eps, float* reduction) {
    const int step = Group::size() * width;
    float total[1] = {}, moments[2] = {}, x[width];
    if (layernorm) {
#pragma unroll 2
        for (int i = Group::rank() * width; i < C; i += step) {
            load_floats(x, s + i);
            for (int k = 0; k < width; k++) total[0] += x[k];
        }
        Group::sum(total, reduction);
    }
    const float mean = total[0] / float(C);
#pragma unroll 2
    for (int i = Group::rank() * width; i < C; i += step) {
        load_floats(x, s + i);
        for (int k = 0; k < width; k++) moments[0] += x[k] - mean, moments[1] += (x[k] - mean) * (x[k] - mean);
    }
    Group::sum(moments, reduction);
    const float correction = layernorm ? moments[0] / float(C) : 0.0f;
    const float variance = fmaxf(0.0f, moments[1] / float(C) - correction * correction);
    return {mean + correction, 1.0f / sqrtf(variance + eps)};
}

/// s of a row, to `kept` and to `sum` where they are given. A thread asks for up to 64 bytes before it uses the first.
template <class Group, int width, class A, class T, class Second>
__device__ void make_row(A* kept, A* sum, const RowTerms<T, Second>& row, int C) {
    using First = Vector<T, width>;
    using Added = decltype(row.second.template fetch<width>(0));
    constexpr int ahead = std::min(4, 64 / int(sizeof(First) + sizeof(Added)));
    const int step = Group::size() * width;
#pragma unroll 1
    for (int begin = Group::rank() * width; begin < C; begin += ahead * step) {
        First first[ahead];
        Added second[ahead];
#pragma unroll
        for (int k = 0; k < ahead; k++) {
            const int i = begin + k * step;
            if (i >= C) continue;
            first[k] = load_vector<width>(row.first + i);
            if (row.second) second[k] = row.second.template fetch<width>(i);
        }
#pragma unroll
        for (int k = 0; k < ahead; k++) {
            const int i = begin + k * step;
            if (i >= C) continue;
            float s[width];
            for (int j = 0; j < width; j++) s[j] = row.second ? to_float(first[k][j]) + to_float(second[k][j]) : to_float(first[k][j]);
            if (kept) store_floats(kept + i, s);
            if (sum) store_floats(sum + i, s);
        }
    }
}

/// weight, bias: Floats or AnyFloats.
template <class Group, int width, class A, class W>
__device__ void normalise_row(A* y, const A* s, NormStatistics at, W weight, W bias, int C) {
#pragma unroll 2
    for (int i = Group::rank() * width; i < C; i += Group::size() * width) {
        float x[width];
        load_floats(x, s + i);
        const auto w = weight.template fetch<width>(i);
        for (int k = 0; k < width; k++) x[k] = (x[k] - at.mean) * at.rstd * to_float(w[k]);
        if (bias) {
            const auto b = bias.template fetch<width>(i);
            for (int k = 0; k < width; k++) x[k] += to_float(b[k]);
        }
        store_floats(y + i, x);
    }
}

/// to (C) = from, by the whole block.
template <int width>
__device__ void copy_floats(float* to, AnyFloats from, int C) {
    for (int i = int(threadIdx.x) * width; i < C; i += int(blockDim.x) * width) {
        float x[width];
        from.load(x, i);
        store_floats(to + i, x);
    }
}

constexpr int padded_columns(int n) { return (n + 3) / 4 * 4; }

/// Source: row(n) gives RowTerms, first is of dtype Term; called by all threads of a warp together.
template <class Group, int width, class A, class Source>
__global__ void __launch_bounds__(Group::most_threads, Group::resident_blocks) norm_rows_kernel(NormedRows<A> n, Source source) {
    using Term = typename Source::Term;
    float* const reduction = shared_memory<float>();
    float* const weight = reduction + reduction_floats;
    float* const bias = weight + (n.keep_weights ? padded_columns(n.C) : 0);
    A* const rows = reinterpret_cast<A*>(bias + (n.keep_weights && n.bias ? padded_columns(n.C) : 0));
    if (n.keep_weights) {
        copy_floats<width>(weight, n.weight, n.C);
        if (n.bias) copy_floats<width>(bias, n.bias, n.C);
        __syncthreads();
    }
    const int groups = int(blockDim.x) / Group::size();
    A* const kept = n.keep_rows ? rows + Group::place() * padded_columns(n.C) : nullptr;
    for (int64_t row = int64_t(blockIdx.x) * groups + Group::place(); row < n.N; row += int64_t(gridDim.x) * groups) {
        const auto terms = source.row(row);
        A* const sum = n.sum ? n.sum + row * n.C : nullptr;
        const A* s = kept ? kept : sum;
        if (kept || sum) make_row<Group, width>(kept, sum, terms, n.C);
        if constexpr (std::is_same_v<A, Term>) s = s ? s : terms.first;
        if (!n.y) continue;
        const NormStatistics at = norm_statistics<Group, width>(s, n.C, n.layernorm, n.eps, reduction);
        if (Group::rank() == 0) {
            n.rstd[row] = at.rstd;
            if (n.layernorm) n.mean[row] = at.mean;
        }
        A* const y = n.y + row * n.C;
        if (n.keep_weights)
            normalise_row<Group, width>(y, s, at, Floats<float>{weight}, Floats<float>{n.bias ? bias : nullptr}, n.C);
        else
            normalise_row<Group, width>(y, s, at, n.weight, n.bias, n.C);
    }
}

/// C of rows whose columns are counted in int, which takes fewer registers.
inline int row_columns(const Tensor& x) {
    CLOVER_CHECK(x.columns() < (1 << 30), x.describe());
    return int(x.columns());
}

/// Threads of a block, by C alone: what one thread sums decides the bits.
struct RowThreads {
    bool by_warp;
    int threads;
    explicit RowThreads(int64_t C, int64_t most_by_warp)
        : by_warp(C <= most_by_warp), threads(by_warp || C <= 4096 ? 256 : BlockGroup::most_threads) {
        if (!by_warp && C <= 2048) threads = 128;
    }
    /// Blocks for `groups` of rows: a thousand threads for each multiprocessor, as far as a block then has eight groups to read the weights
    /// for; but two blocks for each if there are rows for them.
    unsigned blocks(int64_t groups) const {
        const int64_t full = planned_multiprocessors * 1024 / threads;
        return blocks_for(std::min(groups, std::clamp(groups / 8, 2 * planned_multiprocessors, full)), 1);
    }
};

/// Runs the kernel over all rows; `vectors`: everything can be accessed four elements at a time.
template <class A, class Source>
void run_norm_rows(Context& ctx, NormedRows<A> n, const Source& source, bool vectors) {
    const RowThreads plan(n.C, 1024);
    const int64_t groups = plan.by_warp ? plan.threads / warp_size : 1, columns = padded_columns(n.C);
    // More than half of what a multiprocessor has would leave it one block, which cannot load while it sums.
    const size_t most = 100 << 10, rows = size_t(groups * columns) * sizeof(A);
    size_t shared = reduction_floats * sizeof(float);
    n.keep_rows = n.y && shared + rows <= most;
    shared += n.keep_rows ? rows : 0;
    const size_t weights = size_t(columns) * sizeof(float) * (n.bias.data ? 2 : 1);
    n.keep_weights = n.y && shared + weights <= most;
    shared += n.keep_weights ? weights : 0;
    const Launch l{plan.blocks(RowCut::ceil(n.N, groups)), unsigned(plan.threads), shared};
    const auto run = [&](auto group) {
        using Group = decltype(group);
        vectors ? launch(ctx, l, norm_rows_kernel<Group, 4, A, Source>, n, source) : launch(ctx, l, norm_rows_kernel<Group, 1, A, Source>, n, source);
    };
    plan.by_warp ? run(WarpGroup{}) : run(BlockGroup{});
}

/// The part of a norm's call that does not say where its rows come from.
template <class A>
NormedRows<A> normed_rows(const NormForward& n, A* sum) {
    return {.N = n.x.shape[0], .C = row_columns(n.x), .sum = sum, .y = n.y.as<A>(), .layernorm = n.kind == NormKind::layernorm, .eps = n.eps,
            .weight = AnyFloats(n.weight), .bias = AnyFloats(n.bias), .mean = n.mean.present() ? n.mean.as<float>() : nullptr,
            .rstd = n.rstd.as<float>()};
}

}  // namespace clover
