// LayerNorm and RMSNorm on the CPU. A row is read from memory once; its further passes find it in the first-level cache.
// RMSNorm is computed as a LayerNorm whose mean, and whose mean gradient, are 0.
#include "norm.h"

#include "parallel.h"

namespace clover {
namespace {
using namespace simd;

struct Statistics {
    float mean, rstd;
};

/// Mean and variance by the corrected two-pass algorithm (Chan, Golub, LeVeque 1983): the rounding error of the first mean, which
/// matters when the mean is large beside the deviations, is the mean of the deviations from it.
template <class A>
Statistics layernorm_statistics(const A* s, int64_t C, float eps) {
    const float count = float(C);
    const float mean = sum_over(C, [=](int64_t i, auto lanes) { return load(s + i, lanes); }) / count;
    const auto [deviations, squares] = sums_over<2>(C, [=](int64_t i, auto lanes) {
        const f32x16 d = load(s + i, lanes) - mean;
        return std::array<f32x16, 2>{d, d * d};
    });
    const float correction = deviations / count;
    const float variance = std::max(0.0f, squares / count - correction * correction);
    return {mean + correction, 1.0f / __builtin_sqrtf(variance + eps)};
}

template <class A>
Statistics rmsnorm_statistics(const A* s, int64_t C, float eps) {
    const float squares = sum_over(C, [=](int64_t i, auto lanes) {
        const f32x16 v = load(s + i, lanes);
        return v * v;
    });
    return {0.0f, 1.0f / __builtin_sqrtf(squares / float(C) + eps)};
}

template <class A, class W>
void normalise_row(A* y, const A* s, Statistics at, const W* weight, const W* bias, int64_t C) {
    if (bias)
        for_vectors(C, [=](int64_t i, auto lanes) {
            const f32x16 normed = (load(s + i, lanes) - at.mean) * at.rstd;
            store(y + i, normed * load(weight + i, lanes) + load(bias + i, lanes), lanes);
        });
    else
        for_vectors(C, [=](int64_t i, auto lanes) {
            const f32x16 normed = (load(s + i, lanes) - at.mean) * at.rstd;
            store(y + i, normed * load(weight + i, lanes), lanes);
        });
}

template <class A, class W>
void forward_rows(const NormForward& n) {
    const int64_t N = n.x.rows(), C = n.x.columns();
    const bool layernorm = n.kind == NormKind::layernorm;
    A* const y = n.y.as<A>();
    const A* const x = n.x.as<A>();
    const A* const delta = n.delta.present() ? n.delta.as<A>() : nullptr;
    A* const sum = delta ? n.sum.as<A>() : nullptr;
    const W* const weight = n.weight.as<W>();
    const W* const bias = n.bias.present() ? n.bias.as<W>() : nullptr;
    float* const mean = layernorm ? n.mean.as<float>() : nullptr;
    float* const rstd = n.rstd.as<float>();

#pragma omp parallel for schedule(static) if (N * C > parallel_above)
    for (int64_t row = 0; row < N; row++) {
        const A* s = x + row * C;
        if (delta) {
            for_vectors(C, [a = s, b = delta + row * C, to = sum + row * C](int64_t i, auto lanes) {
                store(to + i, load(a + i, lanes) + load(b + i, lanes), lanes);
            });
            s = sum + row * C;
        }
        const Statistics at = layernorm ? layernorm_statistics(s, C, n.eps) : rmsnorm_statistics(s, C, n.eps);
        if (mean) mean[row] = at.mean;
        rstd[row] = at.rstd;
        normalise_row(y + row * C, s, at, weight, bias, C);
    }
}

void forward(Context&, const NormForward& n) {
    check(n);
    by_dtype(n.x.dtype, [&](auto a) {
        by_dtype(n.weight.dtype, [&](auto w) { forward_rows<decltype(a), decltype(w)>(n); });
    });
}

// ---- backward: with xhat = (s − mean) · rstd and g = dy · weight,
//   ds = rstd · (g − mean(g) − xhat · mean(g · xhat)),   dweight = Σ dy · xhat,   dbias = Σ dy ----

template <class A, class W>
struct BackwardRows {
    int64_t C;
    bool layernorm, accumulate;
    A* dx;
    const A *dy, *x;
    const W* weight;
    const float *mean, *rstd;

    explicit BackwardRows(const NormBackward& n)
        : C(n.x.columns()), layernorm(n.kind == NormKind::layernorm), accumulate(n.accumulate_dx), dx(n.dx.as<A>()), dy(n.dy.as<A>()),
          x(n.x.as<A>()), weight(n.weight.as<W>()), mean(layernorm ? n.mean.as<float>() : nullptr), rstd(n.rstd.as<float>()) {}

    struct Means {
        float g, g_xhat;
    };
    Means means_of(int64_t row) const {
        const A *const dy_row = dy + row * C, *const x_row = x + row * C;
        const W* const w = weight;
        const float m = mean ? mean[row] : 0.0f, r = rstd[row];
        const auto [g, g_xhat] = sums_over<2>(C, [=](int64_t i, auto lanes) {
            const f32x16 grad = load(dy_row + i, lanes) * load(w + i, lanes), xhat = (load(x_row + i, lanes) - m) * r;
            return std::array<f32x16, 2>{grad, grad * xhat};
        });
        return {layernorm ? g / float(C) : 0.0f, g_xhat / float(C)};
    }

    /// dx of `count` <= 4 rows, and their part of the parameters' gradients: the partial sums are read and written once for all four.
    template <class Count>
    void group(int64_t first, Count count, float* dweight, float* dbias) const {
        Means means[4];
        float m[4], r[4];
        for (int k = 0; k < count; k++) {
            means[k] = means_of(first + k);
            m[k] = mean ? mean[first + k] : 0.0f;
            r[k] = rstd[first + k];
        }
        for_vectors(C, [&, C = C, dx = dx, dy = dy, x = x, weight = weight, accumulate = accumulate](int64_t i, auto lanes) {
            const f32x16 w = load(weight + i, lanes);
            f32x16 dw = load(dweight + i, lanes), db = {};
            for (int k = 0; k < count; k++) {
                const int64_t at = (first + k) * C + i;
                const f32x16 grad = load(dy + at, lanes), xhat = (load(x + at, lanes) - m[k]) * r[k];
                f32x16 ds = (grad * w - means[k].g - xhat * means[k].g_xhat) * r[k];
                if (accumulate) ds += load(dx + at, lanes);
                store(dx + at, ds, lanes);
                dw += grad * xhat;
                db += grad;
            }
            store(dweight + i, dw, lanes);
            if (dbias) store(dbias + i, load(dbias + i, lanes) + db, lanes);
        });
    }

    void block(int64_t first, int64_t end, float* dweight, float* dbias) const {
        std::fill_n(dweight, C, 0.0f);
        if (dbias) std::fill_n(dbias, C, 0.0f);
        for (; first + 4 <= end; first += 4) group(first, std::integral_constant<int, 4>{}, dweight, dbias);
        if (first < end) group(first, int(end - first), dweight, dbias);
    }
};

size_t backward_workspace_bytes(const NormBackward& n) {
    const size_t partials = Workspace::padded(size_t(RowBlocks(n.x.rows()).count * n.x.columns()) * sizeof(float));
    return n.dbias.present() ? 2 * partials : partials;
}

template <class A, class W>
void backward_rows(Context& ctx, const NormBackward& n) {
    const BackwardRows<A, W> rows(n);
    const RowBlocks blocks(n.x.rows());
    const int64_t C = rows.C;
    const WorkspaceScope scope(ctx.workspace);
    float* const dweight = ctx.workspace.take<float>(blocks.count * C);
    float* const dbias = n.dbias.present() ? ctx.workspace.take<float>(blocks.count * C) : nullptr;

#pragma omp parallel for schedule(static) if (n.x.count() > parallel_above)
    for (int64_t b = 0; b < blocks.count; b++)
        rows.block(blocks.first(b), blocks.end(b), dweight + b * C, dbias ? dbias + b * C : nullptr);
    add_partials(n.dweight.as<float>(), dweight, blocks.count, C);
    if (dbias) add_partials(n.dbias.as<float>(), dbias, blocks.count, C);
}

void backward(Context& ctx, const NormBackward& n) {
    check(n);
    by_dtype(n.x.dtype, [&](auto a) {
        by_dtype(n.weight.dtype, [&](auto w) { backward_rows<decltype(a), decltype(w)>(ctx, n); });
    });
}

}  // namespace

const NormOps norm_cpu = {forward, backward_workspace_bytes, backward};

}  // namespace clover
