// GeLU on CUDA, elementwise, by the formulas of gelu.cpp: with e = exp(−2u), u the argument of tanh, and s = 1 / (1 + e), 0.5 (1 + t) is s and
// 0.25 (1 − t²) is s · e s, without the cancellation of 1 + t for negative x and of 1 − t for positive x.
#include "gelu.h"

#include "map.cuh"

namespace clover {
namespace {

constexpr float root = 0.7978845608028654f;  // √(2/π)
constexpr float cubic = 0.044715f;
constexpr float log2_e = 1.4426950408889634f;

/// The lesser and the greater of both; not a number if x is not.
__device__ float at_most(float limit, float x) { return x > limit ? limit : x; }
__device__ float at_least(float limit, float x) { return x < limit ? limit : x; }

/// exp(−2u) as a power of 2, kept below 2^126, up to which __fdividef is right.
__device__ float exp_of_minus_2u(float x) {
    return ptx::exp2_approximate(at_most(125.0f, x * (x * x * (-2 * root * cubic * log2_e) + -2 * root * log2_e)));
}

struct Value {
    // Far below -20 the exponential no longer grows with x, so x must not either.
    __device__ float operator()(float x) const { return __fdividef(at_least(-20.0f, x), 1.0f + exp_of_minus_2u(x)); }
};
struct Gradient {
    __device__ float operator()(float dy, float x) const {
        const float e = exp_of_minus_2u(x), s = __fdividef(1.0f, 1.0f + e);
        // x times the slope of 2u, at an x for which it is finite: beyond 20, s · e s is 0.
        const float near = at_least(-20.0f, at_most(20.0f, x));
        const float slope = near * (near * near * (6 * root * cubic) + 2 * root);
        return dy * (s + s * (e * s) * slope);
    }
};

void forward(Context& ctx, const GeluForward& g) {
    check(g);
    by_dtype(g.x.dtype, [&](auto t) { map(ctx, g.x.count(), Value{}, g.y.as<decltype(t)>(), g.x.as<decltype(t)>()); });
}

void backward(Context& ctx, const GeluBackward& g) {
    check(g);
    by_dtype(g.x.dtype, [&](auto t) { map(ctx, g.x.count(), Gradient{}, g.dx.as<decltype(t)>(), g.dy.as<decltype(t)>(), g.x.as<decltype(t)>()); });
}

}  // namespace

const GeluOps gelu_cuda = {forward, backward};

}  // namespace clover
