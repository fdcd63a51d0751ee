// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019), with the residual addition before them fused in.
//   layernorm  y = (s − mean(s)) · rstd · weight + bias,   rstd = 1 / sqrt(mean((s − mean(s))²) + eps)
//   rmsnorm    y =  s            · rstd · weight,          rstd = 1 / sqrt(mean(s²) + eps)
// with s = x + delta where delta is given, else s = x. Statistics are f32 (two passes: the variance is never E[s²] − E[s]²).
// When s is stored in bf16, the statistics are those of the stored (rounded) s, so that backward sees the same numbers.
#pragma once
#include "context.h"

namespace clover {

enum class NormKind : uint8_t { layernorm, rmsnorm };

struct NormForward {
    NormKind kind;
    float eps;
    Tensor y;       // (N, C) activation dtype
    Tensor sum = {};     // (N, C) activation dtype: receives s; absent if delta is absent
    Tensor mean = {};    // (N) f32, layernorm only; absent for rmsnorm
    Tensor rstd;    // (N) f32
    Tensor x;       // (N, C) activation dtype
    Tensor delta = {};   // (N, C) activation dtype, or absent
    Tensor weight;  // (C) f32, bf16 or f16
    Tensor bias = {};    // (C) dtype of weight, or absent
};

struct NormBackward {
    NormKind kind;
    Tensor dx;       // (N, C) activation dtype: dx += gradient through the norm if accumulate_dx, else dx =
    bool accumulate_dx = false;
    Tensor dweight;  // (C) f32, accumulated
    Tensor dbias = {};    // (C) f32, accumulated; absent if the norm has no bias
    Tensor dy;       // (N, C) activation dtype
    Tensor x;        // (N, C) the normed s of the forward
    Tensor weight;   // (C)
    Tensor mean = {};     // (N) f32, layernorm only
    Tensor rstd;     // (N) f32
};

inline void check_parameters(NormKind kind, int64_t N, int64_t C, const Tensor& weight, const Tensor& mean, const Tensor& rstd) {
    CLOVER_CHECK(weight.has_shape({C}), weight.describe());
    CLOVER_CHECK(rstd.has_shape({N}) && rstd.dtype == Dtype::f32, rstd.describe());
    if (kind == NormKind::layernorm)
        CLOVER_CHECK(mean.has_shape({N}) && mean.dtype == Dtype::f32, mean.describe());
    else
        CLOVER_CHECK(!mean.present());
}
inline void check(const NormForward& n) {
    CLOVER_CHECK(n.x.rank == 2, n.x.describe());
    const int64_t N = n.x.shape[0], C = n.x.shape[1];
    CLOVER_CHECK(n.y.has_shape({N, C}) && n.y.dtype == n.x.dtype, n.y.describe());
    CLOVER_CHECK(n.sum.present() == n.delta.present());
    if (n.delta.present()) {
        CLOVER_CHECK(n.delta.has_shape({N, C}) && n.delta.dtype == n.x.dtype, n.delta.describe());
        CLOVER_CHECK(n.sum.has_shape({N, C}) && n.sum.dtype == n.x.dtype, n.sum.describe());
    }
    check_parameters(n.kind, N, C, n.weight, n.mean, n.rstd);
    if (n.bias.present()) CLOVER_CHECK(n.bias.has_shape({C}) && n.bias.dtype == n.weight.dtype, n.bias.describe());
}
inline void check(const NormBackward& n) {
    CLOVER_CHECK(n.x.rank == 2, n.x.describe());
    const int64_t N = n.x.shape[0], C = n.x.shape[1];
    CLOVER_CHECK(n.dx.has_shape({N, C}) && n.dx.dtype == n.x.dtype, n.dx.describe());
    CLOVER_CHECK(n.dy.has_shape({N, C}) && n.dy.dtype == n.x.dtype, n.dy.describe());
    CLOVER_CHECK(n.dweight.has_shape({C}) && n.dweight.dtype == Dtype::f32, n.dweight.describe());
    if (n.dbias.present()) CLOVER_CHECK(n.dbias.has_shape({C}) && n.dbias.dtype == Dtype::f32, n.dbias.describe());
    check_parameters(n.kind, N, C, n.weight, n.mean, n.rstd);
}

struct NormOps {
    void (*forward)(Context&, const NormForward&);
    size_t (*backward_workspace_bytes)(const NormBackward&);
    void (*backward)(Context&, const NormBackward&);
};
extern const NormOps norm_cpu, norm_cuda;

}  // namespace clover
