// Sums, casts, column sums and the global norm on the CPU.
#include "elementwise.h"

#include <cmath>
#include <limits>

#include "parallel.h"

namespace clover {
namespace {
using namespace simd;

void add(Context&, Tensor out, Tensor a, Tensor b) {
    check_add(out, a, b);
    by_dtype(out.dtype, [&](auto o) {
        by_dtype(a.dtype, [&](auto p) {
            by_dtype(b.dtype, [&](auto q) {
                parallel_vectors(out.count(), [to = out.as<decltype(o)>(), x = a.as<decltype(p)>(),
                                               y = b.as<decltype(q)>()](int64_t i, auto lanes) {
                    store(to + i, load(x + i, lanes) + load(y + i, lanes), lanes);
                });
            });
        });
    });
}

void cast(Context&, Tensor to, Tensor from) {
    check_cast(to, from);
    by_dtype(to.dtype, [&](auto t) {
        by_dtype(from.dtype, [&](auto f) {
            parallel_vectors(to.count(), [y = to.as<decltype(t)>(), x = from.as<decltype(f)>()](int64_t i, auto lanes) {
                store(y + i, load(x + i, lanes), lanes);
            });
        });
    });
}

void fill(Context&, Tensor out, float value) {
    by_dtype(out.dtype, [&](auto t) {
        parallel_vectors(out.count(), [to = out.as<decltype(t)>(), value](int64_t i, auto lanes) { store(to + i, splat(value), lanes); });
    });
}

// ---- column sums: partial sums of blocks of rows, then their sum ----

size_t column_sum_workspace_bytes(Tensor x) {
    return Workspace::padded(size_t(RowBlocks(x.rows()).count * x.columns()) * sizeof(float));
}

/// sums (C) = Σ of the rows [first, end) of x, four at a time, so that the sums are read and written once for four.
template <class T>
void sum_rows(float* sums, const T* x, int64_t first, int64_t end, int64_t C) {
    std::fill_n(sums, C, 0.0f);
    for (; first + 4 <= end; first += 4)
        for_vectors(C, [=, a = x + first * C](int64_t i, auto lanes) {
            const f32x16 lower = load(a + i, lanes) + load(a + C + i, lanes), upper = load(a + 2 * C + i, lanes) + load(a + 3 * C + i, lanes);
            store(sums + i, load(sums + i, lanes) + (lower + upper), lanes);
        });
    for (; first < end; first++)
        for_vectors(C, [=, a = x + first * C](int64_t i, auto lanes) { store(sums + i, load(sums + i, lanes) + load(a + i, lanes), lanes); });
}

void column_sum(Context& ctx, Tensor sums, Tensor x) {
    check_column_sum(sums, x);
    const RowBlocks blocks(x.shape[0]);
    const int64_t C = x.shape[1];
    const WorkspaceScope scope(ctx.workspace);
    float* const partials = ctx.workspace.take<float>(blocks.count * C);
    by_dtype(x.dtype, [&](auto t) {
        const auto* const data = x.as<decltype(t)>();
#pragma omp parallel for schedule(static) if (x.count() > parallel_above)
        for (int64_t b = 0; b < blocks.count; b++) sum_rows(partials + b * C, data, blocks.first(b), blocks.end(b), C);
    });
    add_partials(sums.as<float>(), partials, blocks.count, C);
}

// ---- the global norm ----

constexpr int64_t squares_block = 8192;

int64_t squares_blocks(Tensor x) { return (x.count() + squares_block - 1) / squares_block; }

size_t sum_of_squares_workspace_bytes(Tensor x) { return Workspace::padded(size_t(squares_blocks(x)) * sizeof(double)); }

double block_sum_of_squares(const float* x, int64_t n) {
    using f32x8 = float __attribute__((vector_size(32)));
    using f64x8 = double __attribute__((vector_size(64)));
    f64x8 running[4] = {};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (int k = 0; k < 4; k++) {
            f32x8 part;
            std::memcpy(&part, x + i + 8 * k, sizeof part);
            const f64x8 v = __builtin_convertvector(part, f64x8);
            running[k] += v * v;
        }
    const f64x8 lanes = (running[0] + running[1]) + (running[2] + running[3]);
    double sum = 0;
    for (int k = 0; k < 8; k++) sum += lanes[k];
    for (; i < n; i++) sum += double(x[i]) * double(x[i]);
    return sum;
}

void sum_of_squares(Context& ctx, Tensor result, Tensor x) {
    check_sum_of_squares(result, x);
    const float* const data = x.as<float>();
    const int64_t n = x.count(), blocks = squares_blocks(x);
    const WorkspaceScope scope(ctx.workspace);
    double* const partials = ctx.workspace.take<double>(blocks);
#pragma omp parallel for schedule(static) if (n > parallel_above)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = b * squares_block;
        partials[b] = block_sum_of_squares(data + first, std::min(squares_block, n - first));
    }
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++) sum += partials[b];
    *result.as<float>() = float(sum);
}

void clip_factor(Context&, Tensor factor, Tensor squares, float limit, float scale) {
    check_clip_factor(factor, squares);
    const double norm = std::sqrt(double(*squares.as<float>())) / double(scale);
    *factor.as<float>() = !std::isfinite(norm) ? std::numeric_limits<float>::quiet_NaN()
                          : limit > 0          ? float(std::min(1.0, limit / (norm + 1e-6)) / double(scale))
                                               : 1 / scale;
}

}  // namespace

const ElementwiseOps elementwise_cpu = {
    add, cast, fill, column_sum_workspace_bytes, column_sum, sum_of_squares_workspace_bytes, sum_of_squares, clip_factor,
};

}  // namespace clover
