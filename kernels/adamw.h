// AdamW (Loshchilov & Hutter 2019), with decay 0 Adam (Kingma & Ba 2015), over all parameters in one call:
//   g  = grad · *grad_scale
//   m  = β1 m + (1 − β1) g
//   v  = β2 v + (1 − β2) g²
//   w  = w − lr · ( (m / (1 − β1^t)) / (√(v / (1 − β2^t)) + eps) + decay · w )
// in f32. The tensors are flat arenas of n elements that share their offsets; segments say which elements are parameters.
#pragma once
#include "context.h"

namespace clover {

struct AdamwSegment {
    int64_t first, count;  // elements [first, first + count)
    float weight_decay;
};

struct Adamw {
    Tensor master;      // (n) f32: w
    Tensor copy = {};        // (n) bf16: receives w rounded to nearest; absent: no copy is kept
    Tensor m, v;        // (n) f32
    Tensor grad;        // (n) f32
    Tensor grad_scale;  // (1) f32: the factor of gradient clipping
    const AdamwSegment* segments;
    int64_t segment_count;
    float lr, beta1, beta2, eps;
    int64_t t;          // step number of the bias correction, from 1
};

struct AdamwOps {
    void (*update)(Context&, const Adamw&);
};
extern const AdamwOps adamw_cpu;

}  // namespace clover
