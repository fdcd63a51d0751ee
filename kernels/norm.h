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
    Tensor weight;  // (C) f32 or bf16
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

struct NormOps {
    void (*forward)(Context&, const NormForward&);
    size_t (*backward_workspace_bytes)(const NormBackward&);
    void (*backward)(Context&, const NormBackward&);
};
extern const NormOps norm_cpu, norm_cuda;

}  // namespace clover
