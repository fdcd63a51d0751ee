// Attention on the CPU: one head of one sequence per thread at a time. Every head writes what no other writes and the sums over the batch
// run in its order, so the bits do not depend on the number of threads.
#include <omp.h>

#include "attention_amx.h"
#include "attention_checks.h"
#include "attention_decode.h"
#include "attention_portable.h"

namespace clover {
namespace {

using namespace attention;

HeadShape shape_of(const Sizes& n, const PositionTerm& position) { return {n.T, 0, n.D, position.kind}; }

/// Row t of sequence b, `columns` of its elements from `first` on.
template <class T>
Rows<T> rows_of(const Tensor& t, const Sizes& n, int64_t b, int64_t first, int64_t columns) {
    return {static_cast<const T*>(t.data) + b * n.T * t.columns() + first, t.columns(), 0, n.T, columns};
}

template <class T>
Head<T> head_of(const Tensor& qkv, const PositionTerm& position, const Sizes& n, int64_t b, int64_t h) {
    Head<T> head{};
    head.shape = shape_of(n, position);
    head.q = rows_of<T>(qkv, n, b, h * 3 * n.D, n.D);
    head.k = rows_of<T>(qkv, n, b, h * 3 * n.D + n.D, n.D);
    head.v = rows_of<T>(qkv, n, b, h * 3 * n.D + 2 * n.D, n.D);
    set_position(head, position, h);
    return head;
}

// `portable` keeps bf16 activations on the f32 path, which is the only one on most machines.

template <bool portable>
size_t forward_workspace_bytes(const AttentionForward& a) {
    const Sizes n = check(a);
    return size_t(head_threads(n.B * n.H)) * forward_scratch_bytes(path_of(a.qkv.dtype, n.T, n.D, portable), shape_of(n, a.position));
}

template <bool portable>
void forward(Context& ctx, const AttentionForward& a) {
    const Sizes n = check(a);
    if (n.B * n.T == 0) return;
    by_dtype(a.qkv.dtype, [&](auto element) {
        using T = decltype(element);
        const Path path = path_of(a.qkv.dtype, n.T, n.D, portable);
        const size_t bytes = forward_scratch_bytes(path, shape_of(n, a.position));
        for_heads(ctx, n.B * n.H, bytes, n.T * n.T * n.D, [&](int64_t unit, void* scratch) {
            const int64_t b = unit / n.H, h = unit % n.H;
            const HeadOutput<T> to{static_cast<T*>(a.out.data) + b * n.T * n.H * n.D + h * n.D, n.H * n.D,
                                   static_cast<float*>(a.lse.data) + unit * n.T};
            forward_head(path, head_of<T>(a.qkv, a.position, n, b, h), scratch, to);
        });
    });
}

/// The gradients of r, u and v before the sum over the batch.
struct BatchParts {
    float *dr, *du, *dv_bias;  // (B, H, T, D), (B, H, D), (B, H, D)
    BatchParts(const Sizes& n, bool relative, Carver& take) {
        const int64_t heads = relative ? n.B * n.H : 0;
        dr = take(heads * n.T * n.D);
        du = take(heads * n.D);
        dv_bias = take(heads * n.D);
    }
};

size_t parts_bytes(const Sizes& n, const PositionTerm& position) {
    Carver count;
    BatchParts(n, position.kind == AttentionPosition::relative, count);
    return count.used;
}

template <bool portable>
size_t backward_workspace_bytes(const AttentionBackward& a) {
    const Sizes n = check(a);
    const Path path = path_of(a.qkv.dtype, n.T, n.D, portable);
    return parts_bytes(n, a.position) + size_t(head_threads(n.B * n.H)) * backward_scratch_bytes(path, shape_of(n, a.position));
}

/// to[c] (+)= Σ_b parts[b · stride + c]
template <bool accumulate>
void sum_parts(const float* parts, int64_t count, int64_t stride, int64_t columns, float* to) {
    simd::for_vectors(columns, [&](int64_t c, auto lanes) {
        f32x16 total = simd::load(parts + c, lanes);
        for (int64_t b = 1; b < count; b++) total += simd::load(parts + b * stride + c, lanes);
        if (accumulate) total += simd::load(to + c, lanes);
        simd::store(to + c, total, lanes);
    });
}

void sum_over_batch(const AttentionBackward& a, const Sizes& n, const BatchParts& parts) {
    const int64_t C = n.H * n.D;
#pragma omp parallel for schedule(static) if (n.B * n.T * C > (1 << 16))
    for (int64_t h = 0; h < n.H; h++) {
        for (int64_t t = 0; t < n.T; t++)
            sum_parts<false>(parts.dr + (h * n.T + t) * n.D, n.B, n.T * C, n.D, static_cast<float*>(a.dr.data) + t * C + h * n.D);
        sum_parts<true>(parts.du + h * n.D, n.B, C, n.D, static_cast<float*>(a.dcontent_bias.data) + h * n.D);
        sum_parts<true>(parts.dv_bias + h * n.D, n.B, C, n.D, static_cast<float*>(a.dposition_bias.data) + h * n.D);
    }
}

template <class T>
void backward_unit(Path path, const AttentionBackward& a, const Sizes& n, const BatchParts& parts, int64_t unit, void* scratch) {
    const int64_t b = unit / n.H, h = unit % n.H;
    T* dqkv = static_cast<T*>(a.dqkv.data) + b * n.T * n.H * 3 * n.D + h * 3 * n.D;
    HeadGradients<T> grad{};
    grad.dout = rows_of<T>(a.dout, n, b, h * n.D, n.D);
    grad.out = rows_of<T>(a.out, n, b, h * n.D, n.D);
    grad.lse = static_cast<const float*>(a.lse.data) + unit * n.T;
    grad.dq = dqkv;
    grad.dk = dqkv + n.D;
    grad.dv = dqkv + 2 * n.D;
    grad.stride = n.H * 3 * n.D;
    if (a.position.kind == AttentionPosition::relative) {
        grad.dr = parts.dr + unit * n.T * n.D;
        grad.du = parts.du + unit * n.D;
        grad.dv_bias = parts.dv_bias + unit * n.D;
    }
    backward_head(path, head_of<T>(a.qkv, a.position, n, b, h), scratch, grad);
}

template <bool portable>
void backward(Context& ctx, const AttentionBackward& a) {
    const Sizes n = check(a);
    const bool relative = a.position.kind == AttentionPosition::relative;
    if (n.B * n.T == 0) {
        if (relative) std::fill_n(a.dr.as<float>(), a.dr.count(), 0.0f);
        return;
    }
    WorkspaceScope scope(ctx.workspace);
    Carver take{ctx.workspace.take<char>(int64_t(parts_bytes(n, a.position)))};
    const BatchParts parts(n, relative, take);
    const Path path = path_of(a.qkv.dtype, n.T, n.D, portable);
    by_dtype(a.qkv.dtype, [&](auto element) {
        using T = decltype(element);
        for_heads(ctx, n.B * n.H, backward_scratch_bytes(path, shape_of(n, a.position)), n.T * n.T * n.D,
                  [&](int64_t unit, void* scratch) { backward_unit<T>(path, a, n, parts, unit, scratch); });
    });
    if (relative) sum_over_batch(a, n, parts);
}

template <bool portable>
constexpr AttentionOps operations = {forward_workspace_bytes<portable>,  forward<portable>,
                                     backward_workspace_bytes<portable>, backward<portable>,
                                     decode_workspace_bytes<portable>,   decode<portable>};

}  // namespace

const AttentionOps attention_cpu = operations<false>;
const AttentionOps attention_cpu_portable = operations<true>;

}  // namespace clover
