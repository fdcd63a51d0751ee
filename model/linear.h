// A linear layer y = x Wᵀ + b: three matrix products.
#pragma once
#include <algorithm>

#include "../kernels/device.h"

namespace clover {

/// y (N, O) = x (N, I) w (O, I)ᵀ + bias (O). With `pre_activation` (N, O), that receives the sum and y = gelu(sum).
inline Gemm linear_product(Tensor y, Tensor x, Tensor w, Tensor bias, Tensor pre_activation = {}) {
    return {.c = y, .a = x, .b = w, .bias = bias, .transpose_b = true, .pre_activation = pre_activation};
}
inline void linear_forward(Context& ctx, Tensor y, Tensor x, Tensor w, Tensor bias, Tensor pre_activation = {}) {
    ctx.device.gemm.run(ctx, linear_product(y, x, w, bias, pre_activation));
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
    Tensor gelu_input = {};  // (N, I): x is gelu of this, and dx the gradient of this
};

inline Gemm input_gradient(const LinearBackward& l) { return {.c = l.dx, .a = l.dy, .b = l.w, .gelu_input = l.gelu_input}; }
inline Gemm weight_gradient(const LinearBackward& l) {
    return {.c = l.dw, .a = l.dy, .b = l.x, .transpose_a = true, .accumulate = !l.fresh, .bias_gradient = l.dbias};
}
inline void linear_backward(Context& ctx, const LinearBackward& l) {
    if (l.dx.present()) ctx.device.gemm.run(ctx, input_gradient(l));
    ctx.device.gemm.run(ctx, weight_gradient(l));
}

/// Scratch of linear_backward, for either value of `fresh`.
inline size_t linear_backward_workspace_bytes(Context& ctx, LinearBackward l) {
    size_t most = l.dx.present() ? ctx.device.gemm.workspace_bytes(ctx, input_gradient(l)) : 0;
    for (bool fresh : {true, false}) {
        l.fresh = fresh;
        most = std::max(most, ctx.device.gemm.workspace_bytes(ctx, weight_gradient(l)));
    }
    return most;
}

}  // namespace clover
