// Matrix product: c = op(a) op(b) [+ bias] [+ c]. By oneDNN on the CPU, by cuBLASLt on CUDA. Products are summed in f32.
//
// The three products of a linear layer y = x Wᵀ + bias, with W stored (out, in), all take the tensors as they lie:
//   forward   y  = x Wᵀ + bias     {.c = y,  .a = x,  .b = w, .bias = bias, .transpose_b = true}
//   backward  dx = dy W            {.c = dx, .a = dy, .b = w}
//             dW += dyᵀ x          {.c = dw, .a = dy, .b = x, .transpose_a = true, .accumulate = true}
#pragma once
#include "context.h"

namespace clover {

struct Gemm {
    Tensor c;     // (M, N) f32 or bf16
    Tensor a;     // (M, K), or (K, M) if transpose_a; f32 or bf16
    Tensor b;     // (K, N), or (N, K) if transpose_b; the dtype of a
    Tensor bias = {};  // (N) f32 or bf16, or absent
    bool transpose_a = false;
    bool transpose_b = false;
    bool accumulate = false;  // c += instead of c =
};

struct GemmOps {
    /// Scratch that run() will take for these shapes (data pointers may be null). Also makes the plan.
    size_t (*workspace_bytes)(Context&, const Gemm&);
    void (*run)(Context&, const Gemm&);
};
extern const GemmOps gemm_cpu;

}  // namespace clover
