// Softmax cross-entropy with its gradient, on a chunk of R rows of logits at a time, so that the whole (B·T, V) never exists.
//   loss_r     = log Σ_k exp(logits_rk) − logits_r,target
//   dlogits_rk = scale · (exp(logits_rk) / Σ_j exp(logits_rj) − [k = target])
// All arithmetic in f32, with the row maximum taken out first. Sums over a row run in an order that depends on V alone.
#pragma once
#include "context.h"

namespace clover {

struct CrossEntropy {
    Tensor loss;     // (R) f32; 0 where the target is negative
    Tensor dlogits = {};  // (R, V) f32 or bf16, may be the memory of logits if f32; zero rows where the target is negative; absent: loss only
    Tensor logits;   // (R, V) f32
    Tensor targets;  // (R) i32: below V; negative: this position is not trained
    float scale = 1; // usually 1 / trained targets in the global batch
};

struct CrossEntropyOps {
    void (*run)(Context&, const CrossEntropy&);
};
extern const CrossEntropyOps cross_entropy_cpu;

}  // namespace clover
