// GeLU, tanh form (Hendrycks & Gimpel 2016), as BLOOM and GPT-2 have it:
//   y  = 0.5 x (1 + t),   t = tanh(√(2/π) (x + 0.044715 x³))
//   dx = dy · (0.5 (1 + t) + 0.5 x (1 − t²) √(2/π) (1 + 3 · 0.044715 x²))
#pragma once
#include "context.h"

namespace clover {

struct GeluForward {
    Tensor y;  // (N, F) activation dtype
    Tensor x;  // (N, F)
};
struct GeluBackward {
    Tensor dx;  // (N, F) activation dtype; may be the memory of dy
    Tensor dy;  // (N, F)
    Tensor x;   // (N, F)
};

inline void check(const GeluForward& g) {
    CLOVER_CHECK(g.x.rank == 2 && g.y.has_shape({g.x.shape[0], g.x.shape[1]}), g.y.describe(), " from ", g.x.describe());
    CLOVER_CHECK(g.y.dtype == g.x.dtype, g.y.describe(), " from ", g.x.describe());
}
inline void check(const GeluBackward& g) {
    CLOVER_CHECK(g.x.rank == 2, g.x.describe());
    for (const Tensor& t : {g.dx, g.dy})
        CLOVER_CHECK(t.has_shape({g.x.shape[0], g.x.shape[1]}) && t.dtype == g.x.dtype, t.describe(), " beside x ", g.x.describe());
}

struct GeluOps {
    void (*forward)(Context&, const GeluForward&);
    void (*backward)(Context&, const GeluBackward&);
};
extern const GeluOps gelu_cpu, gelu_cuda;

}  // namespace clover
