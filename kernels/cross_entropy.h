// Softmax cross-entropy with its gradient, on a chunk of R rows of logits at a time, so that the whole (B·T, V) never exists.
//   loss_r     = log Σ_k exp(logits_rk) − logits_r,target
//   dlogits_rk = scale · (exp(logits_rk) / Σ_j exp(logits_rj) − [k = target])
// All arithmetic in f32, with the row maximum taken out first. Sums over a row run in an order that depends on V alone.
#pragma once
#include "context.h"

namespace clover {

struct CrossEntropy {
    Tensor loss;     // (R) f32; 0 where the target is negative
    Tensor dlogits = {};  // (R, V) f32, bf16 or f16, may be the memory of logits if f32; zero rows where the target is negative; absent: loss only
    Tensor logits;   // (R, V) f32
    Tensor targets;  // (R) i32: below V; negative: this position is not trained
    float scale = 1; // usually 1 / trained targets in the global batch
};

/// One rank's share of a vocabulary that is split over ranks: columns [first, first + V) of the whole. Two calls with a reduction over
/// the ranks between them:
///   statistics   maximum_r = max_k logits_rk,  sum_r = Σ_k exp(logits_rk − maximum_r),  target_r = logits_r,target if here, else 0
///   (the ranks)  M = max of their maxima,  S = Σ sum · exp(maximum − M),  t = Σ target
///   finish       loss_r = M_r + log S_r − t_r,  dlogits_rk = scale · (exp(logits_rk − M_r) / S_r − [first + k = target])
struct CrossEntropyShard {
    Tensor loss = {};     // (R) f32, finish only
    Tensor dlogits = {};  // as in CrossEntropy, finish only
    Tensor logits;        // (R, V) f32
    Tensor targets;       // (R) i32, of the whole vocabulary; negative: not trained
    int64_t first = 0;
    float scale = 1;
    Tensor maximum, sum, target;  // (R) f32 each: results of statistics, M, S, t for finish
};

/// All but the values of targets, which lie in the device's memory.
inline void check(const CrossEntropy& c) {
    CLOVER_CHECK(c.logits.rank == 2 && c.logits.dtype == Dtype::f32, c.logits.describe());
    const int64_t R = c.logits.shape[0], V = c.logits.shape[1];
    CLOVER_CHECK(c.loss.has_shape({R}) && c.loss.dtype == Dtype::f32, c.loss.describe());
    CLOVER_CHECK(c.targets.has_shape({R}) && c.targets.dtype == Dtype::i32, c.targets.describe());
    if (c.dlogits.present()) CLOVER_CHECK(c.dlogits.has_shape({R, V}), c.dlogits.describe());
    if (c.dlogits.present() && c.dlogits.dtype != Dtype::f32) CLOVER_CHECK(c.dlogits.data != c.logits.data);
}
/// For statistics; finish asks for the loss besides, and a gradient in place only in f32.
inline void check(const CrossEntropyShard& c) {
    CLOVER_CHECK(c.logits.rank == 2 && c.logits.dtype == Dtype::f32, c.logits.describe());
    const int64_t R = c.logits.shape[0];
    for (const Tensor& t : {c.maximum, c.sum, c.target}) CLOVER_CHECK(t.has_shape({R}) && t.dtype == Dtype::f32, t.describe());
    CLOVER_CHECK(c.targets.has_shape({R}) && c.targets.dtype == Dtype::i32, c.targets.describe());
    CLOVER_CHECK(!c.loss.present() || (c.loss.has_shape({R}) && c.loss.dtype == Dtype::f32), c.loss.describe());
    CLOVER_CHECK(!c.dlogits.present() || c.dlogits.has_shape({R, c.logits.shape[1]}), c.dlogits.describe());
}
inline void check_finish(const CrossEntropyShard& c) {
    check(c);
    CLOVER_CHECK(c.loss.present());
    if (c.dlogits.present() && c.dlogits.dtype != Dtype::f32) CLOVER_CHECK(c.dlogits.data != c.logits.data);
}

struct CrossEntropyOps {
    void (*run)(Context&, const CrossEntropy&);
    void (*statistics)(Context&, const CrossEntropyShard&);
    void (*finish)(Context&, const CrossEntropyShard&);
};
extern const CrossEntropyOps cross_entropy_cpu, cross_entropy_cuda;

}  // namespace clover
