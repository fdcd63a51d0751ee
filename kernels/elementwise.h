// The small operations: sums, casts, column sums, the global norm.
#pragma once
#include "context.h"

namespace clover {

inline void check_add(const Tensor& out, const Tensor& a, const Tensor& b) {
    CLOVER_CHECK(out.count() == a.count() && out.count() == b.count(), out.describe(), " = ", a.describe(), " + ", b.describe());
}
inline void check_cast(const Tensor& to, const Tensor& from) {
    CLOVER_CHECK(to.count() == from.count(), to.describe(), " from ", from.describe());
}
inline void check_column_sum(const Tensor& sums, const Tensor& x) {
    CLOVER_CHECK(x.rank == 2 && sums.has_shape({x.shape[1]}) && sums.dtype == Dtype::f32, sums.describe(), " of ", x.describe());
}
inline void check_sum_of_squares(const Tensor& result, const Tensor& x) {
    CLOVER_CHECK(result.has_shape({1}) && result.dtype == Dtype::f32, result.describe());
    CLOVER_CHECK(x.dtype == Dtype::f32, x.describe());
}
inline void check_clip_factor(const Tensor& factor, const Tensor& squares) {
    CLOVER_CHECK(factor.has_shape({1}) && squares.has_shape({1}), factor.describe(), " of ", squares.describe());
}

struct ElementwiseOps {
    /// out = a + b, equal counts; f32, bf16 or f16, each of its own dtype; out may be a or b.
    void (*add)(Context&, Tensor out, Tensor a, Tensor b);
    /// to = from, rounded to the nearest of to's dtype (f32, bf16 or f16), equal counts.
    void (*cast)(Context&, Tensor to, Tensor from);
    /// Every element = value (f32, bf16 or f16).
    void (*fill)(Context&, Tensor out, float value);
    /// sums (C) f32 += Σ_n x (N, C): the gradient of a bias. Rows are summed in blocks of fixed size.
    size_t (*column_sum_workspace_bytes)(Tensor x);
    void (*column_sum)(Context&, Tensor sums, Tensor x);
    /// result (1) f32 = Σ x² of f32 x, summed in f64 in blocks of fixed size.
    size_t (*sum_of_squares_workspace_bytes)(Tensor x);
    void (*sum_of_squares)(Context&, Tensor result, Tensor x);
    /// factor (1) f32 = min(1, limit / (norm + 1e-6)) / scale, 1 / scale if limit is 0; not a number if the norm is not finite. norm = √squares / scale,
    /// squares (1) f32 those of a gradient `scale` times too large.
    void (*clip_factor)(Context&, Tensor factor, Tensor squares, float limit, float scale);
};
extern const ElementwiseOps elementwise_cpu, elementwise_cuda;

}  // namespace clover
