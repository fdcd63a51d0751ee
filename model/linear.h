// A linear layer y = x Wᵀ + b: three matrix products and a column sum.
#pragma once
#include "../kernels/device.h"

namespace clover {

/// y (N, O) = x (N, I) w (O, I)ᵀ + bias (O).
inline void linear_forward(Context& ctx, Tensor y, Tensor x, Tensor w, Tensor bias) {
    ctx.device.gemm.run(ctx, {.c = y, .a = x, .b = w, .bias = bias, .transpose_b = true});
}

/// What backward of a linear layer reads and writes. dw and dbias are f32.
struct LinearBackward {
    Tensor dx = {};     // (N, I), or absent where no gradient is wanted
    Tensor dw;     // (O, I): dw += dyᵀ x, or = if fresh
    Tensor dbias = {};  // (O): dbias += Σ rows of dy; absent without bias
    Tensor dy;     // (N, O)
    Tensor x;      // (N, I)
    Tensor w;      // (O, I)
    bool fresh;    // dw holds nothing yet
};

inline void linear_backward(Context& ctx, const LinearBackward& l) {
    const Device& k = ctx.device;
    if (l.dx.present()) k.gemm.run(ctx, {.c = l.dx, .a = l.dy, .b = l.w});
    k.gemm.run(ctx, {.c = l.dw, .a = l.dy, .b = l.x, .transpose_a = true, .accumulate = !l.fresh});
    if (l.dbias.present()) k.elementwise.column_sum(ctx, l.dbias, l.dy);
}

}  // namespace clover
