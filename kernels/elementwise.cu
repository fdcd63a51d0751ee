// Sums, casts, column sums and the global norm on CUDA. What sums over more than a block is done in two kernels: partial sums of blocks
// that the sizes alone decide, then their sum in order.
#include "elementwise.h"

#include <cmath>

#include "map.cuh"

namespace clover {
namespace {

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct Same {
    __device__ float operator()(float x) const { return x; }
};
struct Constant {
    float value;
    __device__ float operator()() const { return value; }
};

void add(Context& ctx, Tensor out, Tensor a, Tensor b) {
    check_add(out, a, b);
    by_dtype(out.dtype, [&](auto o) {
        by_dtype(a.dtype, [&](auto p) {
            by_dtype(b.dtype, [&](auto q) {
                map(ctx, out.count(), Sum{}, out.as<decltype(o)>(), a.as<decltype(p)>(), b.as<decltype(q)>());
            });
        });
    });
}

void cast(Context& ctx, Tensor to, Tensor from) {
    check_cast(to, from);
    by_dtype(to.dtype, [&](auto t) {
        by_dtype(from.dtype, [&](auto f) { map(ctx, to.count(), Same{}, to.as<decltype(t)>(), from.as<decltype(f)>()); });
    });
}

void fill(Context& ctx, Tensor out, float value) {
    by_dtype(out.dtype, [&](auto t) { map(ctx, out.count(), Constant{value}, out.as<decltype(t)>()); });
}

// ---- column sums ---------------------------------------------------------------------------------------------------------------

constexpr int sum_warps = 8;

RowCut column_cut(const Tensor& x) { return {x.rows(), x.columns(), 32, planned_multiprocessors * 8}; }

/// partials (gridDim.y, C) = Σ of the rows of x (N, C) of block y: block (32, sum_warps) for 32 · width columns, every warp for every
/// sum_warps-th row.
template <int width, class T>
__global__ void __launch_bounds__(warp_size * sum_warps) column_sum_kernel(float* partials, const T* x, int64_t N, int64_t C, int64_t rows) {
    float(*const shared)[width][warp_size] = shared_memory<float[width][warp_size]>();
    const int lane = int(threadIdx.x), warp = int(threadIdx.y);
    const int64_t column = (int64_t(blockIdx.x) * warp_size + lane) * width, end = min(N, (int64_t(blockIdx.y) + 1) * rows);
    float sum[width] = {};
    if (column < C) {
#pragma unroll 4
        for (int64_t row = blockIdx.y * rows + warp; row < end; row += sum_warps) {
            float v[width];
            load_floats(v, x + row * C + column);
            for (int k = 0; k < width; k++) sum[k] += v[k];
        }
    }
    for (int k = 0; k < width; k++) shared[warp][k][lane] = sum[k];
    __syncthreads();
    if (warp > 0 || column >= C) return;
    for (int k = 0; k < width; k++) {
        sum[k] = 0;
        for (int w = 0; w < sum_warps; w++) sum[k] += shared[w][k][lane];
    }
    constexpr int part = std::min(width, per_16_bytes<float>);
    for (int k = 0; k < width; k += part) {
        float four[part];
        for (int j = 0; j < part; j++) four[j] = sum[k + j];
        store_floats(partials + blockIdx.y * C + column + k, four);
    }
}

size_t column_sum_workspace_bytes(Tensor x) { return Workspace::padded(size_t(column_cut(x).blocks * x.columns()) * sizeof(float)); }

template <int width, class T>
void partial_column_sums(Context& ctx, float* partials, const T* x, int64_t N, int64_t C, const RowCut& cut) {
    const dim3 grid(blocks_for(C, warp_size * width), unsigned(cut.blocks));
    launch(ctx, {grid, dim3(warp_size, sum_warps), sizeof(float[sum_warps][width][warp_size])}, column_sum_kernel<width, T>, partials, x, N, C, cut.rows);
}

void column_sum(Context& ctx, Tensor sums, Tensor x) {
    check_column_sum(sums, x);
    const int64_t N = x.shape[0], C = x.shape[1];
    const RowCut cut = column_cut(x);
    const WorkspaceScope scope(ctx.workspace);
    float* const partials = ctx.workspace.take<float>(cut.blocks * C);
    by_dtype(x.dtype, [&](auto t) {
        using T = decltype(t);
        constexpr int width = per_16_bytes<T>;
        by_vectors(width, C, {x}) ? partial_column_sums<width>(ctx, partials, x.as<T>(), N, C, cut)
                                  : partial_column_sums<1>(ctx, partials, x.as<T>(), N, C, cut);
    });
    add_partials(ctx, sums.as<float>(), nullptr, partials, cut.blocks, C);
}

// ---- the global norm -----------------------------------------------------------------------------------------------------------

constexpr int squares_threads = 256, squares_at_once = 8, squares_block = squares_threads * squares_at_once * 4;
constexpr int total_threads = 1024;

/// Sum over the block, in thread 0; `shared` has a double per thread.
__device__ double block_sum(double x, double* shared) {
    shared[threadIdx.x] = x;
    for (int half = int(blockDim.x) / 2; half > 0; half /= 2) {
        __syncthreads();
        if (int(threadIdx.x) < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    return threadIdx.x == 0 ? shared[0] : 0;
}

/// partials[b] = Σ x² over the block's part of x (n).
__global__ void __launch_bounds__(squares_threads) squares_kernel(double* partials, const float* x, int64_t n, bool vectors) {
    const int64_t first = int64_t(blockIdx.x) * squares_block + threadIdx.x * 4;
    float v[squares_at_once][4];
#pragma unroll
    for (int k = 0; k < squares_at_once; k++) {
        const int64_t i = first + k * squares_threads * 4;
        if (vectors && i + 4 <= n)
            load_floats(v[k], x + i);
        else
            for (int j = 0; j < 4; j++) v[k][j] = i + j < n ? x[i + j] : 0.0f;
    }
    double sum = 0;
#pragma unroll
    for (int k = 0; k < squares_at_once; k++)
        for (int j = 0; j < 4; j++) sum += double(v[k][j]) * double(v[k][j]);
    sum = block_sum(sum, shared_memory<double>());
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/// result = Σ partials (count), by one block.
__global__ void __launch_bounds__(total_threads) total_kernel(float* result, const double* partials, int64_t count) {
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < count; i += total_threads) sum += partials[i];
    sum = block_sum(sum, shared_memory<double>());
    if (threadIdx.x == 0) *result = float(sum);
}

int64_t squares_blocks(const Tensor& x) { return RowCut::ceil(x.count(), squares_block); }

size_t sum_of_squares_workspace_bytes(Tensor x) { return Workspace::padded(size_t(squares_blocks(x)) * sizeof(double)); }

void sum_of_squares(Context& ctx, Tensor result, Tensor x) {
    check_sum_of_squares(result, x);
    const int64_t blocks = squares_blocks(x);
    const WorkspaceScope scope(ctx.workspace);
    double* const partials = ctx.workspace.take<double>(blocks);
    launch(ctx, {blocks_for(x.count(), squares_block), squares_threads, squares_threads * sizeof(double)}, squares_kernel, partials, x.as<float>(),
           x.count(), by_vectors(4, 4, {x}));
    launch(ctx, {1, total_threads, total_threads * sizeof(double)}, total_kernel, result.as<float>(), partials, blocks);
}

__global__ void clip_factor_kernel(float* factor, const float* squares, float limit, float scale) {
    const double norm = sqrt(double(*squares)) / double(scale);
    *factor = !std::isfinite(norm) ? NAN : limit > 0 ? float(min(1.0, limit / (norm + 1e-6)) / double(scale)) : 1 / scale;
}

void clip_factor(Context& ctx, Tensor factor, Tensor squares, float limit, float scale) {
    check_clip_factor(factor, squares);
    launch(ctx, {1, 1}, clip_factor_kernel, factor.as<float>(), squares.as<float>(), limit, scale);
}

}  // namespace

const ElementwiseOps elementwise_cuda = {
    add, cast, fill, column_sum_workspace_bytes, column_sum, sum_of_squares_workspace_bytes, sum_of_squares, clip_factor,
};

}  // namespace clover
