// AdamW (Loshchilov & Hutter 2019), with decay 0 Adam (Kingma & Ba 2015), over all parameters in one call:
//   g  = grad · *grad_scale
//   m  = β1 m + (1 − β1) g
//   v  = β2 v + (1 − β2) g²
//   w  = w − lr · ( (m / (1 − β1^t)) / (√(v / (1 − β2^t)) + eps) + decay · w )
// in f32. The tensors are flat arenas of n elements that share their offsets; segments say which elements are parameters.
// Where *grad_scale is not a number (the gradient norm was not finite) nothing changes: no round trip to the host is needed to hold
// back a step that would ruin the parameters.
#pragma once
#include "context.h"

namespace clover {

struct AdamwSegment {
    int64_t first, count;  // elements [first, first + count)
    float weight_decay;
    float unused = 0;
};
static_assert(sizeof(AdamwSegment) == 24);

struct Adamw {
    Tensor master;      // (n) f32: w
    Tensor copy = {};        // (n) bf16: receives w rounded to nearest; absent: no copy is kept
    Tensor m, v;        // (n) f32
    Tensor grad;        // (n) f32
    Tensor grad_scale;  // (1) f32: the factor of gradient clipping
    Tensor segments;    // (S, 6) i32: S AdamwSegment in the device's memory, ascending, without overlap; elements between stay as they are
    float lr, beta1, beta2, eps;
    int64_t t;          // step number of the bias correction, from 1
};

/// All but the segments themselves, which lie in the device's memory.
inline void check(const Adamw& a) {
    const int64_t n = a.master.count();
    for (const Tensor& t : {a.master, a.m, a.v, a.grad})
        CLOVER_CHECK(t.has_shape({n}) && t.dtype == Dtype::f32, t.describe(), " where ", n, " f32 are expected");
    if (a.copy.present()) CLOVER_CHECK(a.copy.has_shape({n}) && a.copy.dtype == Dtype::bf16, a.copy.describe());
    CLOVER_CHECK(a.grad_scale.has_shape({1}) && a.grad_scale.dtype == Dtype::f32, a.grad_scale.describe());
    CLOVER_CHECK(a.t >= 1, "step ", a.t);
    CLOVER_CHECK(a.segments.rank == 2 && a.segments.shape[1] == 6 && a.segments.dtype == Dtype::i32, a.segments.describe());
}

struct AdamwOps {
    void (*update)(Context&, const Adamw&);
};
extern const AdamwOps adamw_cpu, adamw_cuda;

}  // namespace clover
