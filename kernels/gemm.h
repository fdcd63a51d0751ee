// Matrix product: c = op(a) op(b) [+ bias] [+ c]. By oneDNN on the CPU, by cuBLASLt on CUDA. Products are summed in f32.
//
// The three products of a linear layer y = x Wᵀ + bias, with W stored (out, in), all take the tensors as they lie:
//   forward   y  = x Wᵀ + bias     {.c = y,  .a = x,  .b = w, .bias = bias, .transpose_b = true}
//   backward  dx = dy W            {.c = dx, .a = dy, .b = w}
//             dW += dyᵀ x          {.c = dw, .a = dy, .b = x, .transpose_a = true, .accumulate = true, .bias_gradient = dbias}
#pragma once
#include "context.h"

namespace clover {

struct Gemm {
    Tensor c;     // (M, N) f32, bf16 or f16
    Tensor a;     // (M, K), or (K, M) if transpose_a; f32, bf16 or f16
    Tensor b;     // (K, N), or (N, K) if transpose_b; the dtype of a
    Tensor bias = {};  // (N) f32, bf16 or f16, or absent
    bool transpose_a = false;
    bool transpose_b = false;
    bool accumulate = false;  // c += instead of c =

    // What else is done with the product, each fused into it where the device can. At most one of the three is present.
    /// (M, N) dtype of c: receives x = op(a) op(b) + bias, and c = gelu(x).
    Tensor pre_activation = {};
    /// (M, N) dtype of c: that x of the forward; c = (op(a) op(b)) ⊙ gelu'(x). No bias, no accumulate.
    Tensor gelu_input = {};
    /// (M) f32, with transpose_a (the product is dW = dyᵀ x): bias_gradient += Σ_k op(a)_mk, the column sums of dy.
    Tensor bias_gradient = {};
};

struct GemmSizes {
    int64_t m, n, k;
};
/// The sizes of a product whose tensors fit together; throws Error if they do not.
GemmSizes gemm_sizes(const Gemm& g);

struct GemmOps {
    /// Scratch that run() will take for these shapes (data pointers may be null). Also makes the plan.
    size_t (*workspace_bytes)(Context&, const Gemm&);
    void (*run)(Context&, const Gemm&);
};
extern const GemmOps gemm_cpu, gemm_cuda;

}  // namespace clover
