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

struct AdamwOps {
    void (*update)(Context&, const Adamw&);
};
extern const AdamwOps adamw_cpu, adamw_cuda;

}  // namespace clover
