// AdamW (Loshchilov & Hutter 2019), with decay 0 Adam (Kingma & Ba 2015), over all parameters in one call:
//   g  = grad · *grad_scale
//   m  = β1 m + (1 − β1) g
//   v  = β2 v + (1 − β2) g²
//   w  = w − lr · ( (m / (1 − β1^t)) / (√(v / (1 − β2^t)) + eps) + decay · w )
// in f32, whatever the numbers are stored in. The tensors are flat arenas of n elements that share their offsets; segments say which elements are
// parameters (optimizer.h). Where *grad_scale is not a number (the gradient norm was not finite) nothing changes: no round trip to the host is needed to
// hold back a step that would ruin the parameters.
#pragma once
#include "optimizer.h"

namespace clover {

struct Adamw {
    Weights weights;    // n elements: w
    Tensor m, v;        // (n) f32 or bf16 (rounded to nearest), both of one dtype
    Tensor grad;        // (n) f32
    Tensor grad_scale;  // (1) f32: the factor of gradient clipping
    float lr, beta1, beta2, eps;
    int64_t t;          // step number of the bias correction, from 1
};

inline void check(const Adamw& a) {
    check(a.weights);
    const int64_t n = a.weights.master.count();
    for (const Tensor& t : {a.m, a.v})
        CLOVER_CHECK(t.has_shape({n}) && t.dtype == a.m.dtype && (t.dtype == Dtype::f32 || t.dtype == Dtype::bf16), t.describe(), " of ", n);
    CLOVER_CHECK(a.grad.has_shape({n}) && a.grad.dtype == Dtype::f32, a.grad.describe(), " where ", n, " f32 are expected");
    CLOVER_CHECK(a.grad_scale.has_shape({1}) && a.grad_scale.dtype == Dtype::f32, a.grad_scale.describe());
    CLOVER_CHECK(a.t >= 1, "step ", a.t);
}

struct AdamwOps {
    size_t (*workspace_bytes)(const Adamw&);
    void (*update)(Context&, const Adamw&);
};
extern const AdamwOps adamw_cpu, adamw_cuda;

}  // namespace clover
