// GeLU on the CPU, by e = exp(−2u) with u the argument of tanh, and s = 1 / (1 + e): 0.5 (1 + t) is s and 0.25 (1 − t²) is s · e s,
// without the cancellation of 1 + t for negative x and of 1 − t for positive x.
#include "gelu.h"

#include "parallel.h"

namespace clover {
namespace {
using namespace simd;

constexpr float root = 0.7978845608028654f;  // √(2/π)
constexpr float cubic = 0.044715f;

CLOVER_INLINE f32x16 minus_2u(f32x16 x) { return x * (x * x * (-2 * root * cubic) + -2 * root); }

template <class T>
void forward_elements(const GeluForward& g) {
    T* const y = g.y.as<T>();
    const T* const x = g.x.as<T>();
    parallel_vectors(g.x.count(), [=](int64_t i, auto lanes) {
        const f32x16 v = load(x + i, lanes);
        // e below overflow; far below -20 it no longer grows with x, so x must not either.
        store(y + i, max(splat(-20.0f), v) * reciprocal(1.0f + exp(min(splat(87.0f), minus_2u(v)))), lanes);
    });
}

template <class T>
void backward_elements(const GeluBackward& g) {
    T* const dx = g.dx.as<T>();
    const T *const dy = g.dy.as<T>(), *const x = g.x.as<T>();
    parallel_vectors(g.x.count(), [=](int64_t i, auto lanes) {
        const f32x16 v = load(x + i, lanes);
        // e below overflow, so that e s is 1 there.
        const f32x16 e = exp(min(splat(87.0f), minus_2u(v))), s = reciprocal(1.0f + e);
        // x times the slope of 2u, at an x for which it is finite: beyond 20, s · e s is 0.
        const f32x16 near = max(splat(-20.0f), min(splat(20.0f), v));
        const f32x16 slope = near * (near * near * (6 * root * cubic) + 2 * root);
        store(dx + i, load(dy + i, lanes) * (s + s * (e * s) * slope), lanes);
    });
}

void forward(Context&, const GeluForward& g) {
    check(g);
    by_dtype(g.x.dtype, [&](auto t) { forward_elements<decltype(t)>(g); });
}

void backward(Context&, const GeluBackward& g) {
    check(g);
    by_dtype(g.x.dtype, [&](auto t) { backward_elements<decltype(t)>(g); });
}

}  // namespace

const GeluOps gelu_cpu = {forward, backward};

}  // namespace clover
