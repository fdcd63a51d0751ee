// GeLU on the CPU, by s = 1 / (1 + exp(−2u)) with u the argument of tanh: 0.5 (1 + t) is s, without the cancellation of 1 + t for
// negative x, and 0.25 (1 − t²) is s (1 − s).
#include "gelu.h"

#include "parallel.h"

namespace clover {
namespace {
using namespace simd;

constexpr float root = 0.7978845608028654f, cubic = 0.044715f;  // √(2/π)

CLOVER_INLINE f32x16 sigmoid_of_2u(f32x16 x) { return 1.0f / (1.0f + exp(x * (x * x * (-2 * root * cubic) + -2 * root))); }

template <class T>
void forward_elements(const GeluForward& g) {
    T* const y = g.y.as<T>();
    const T* const x = g.x.as<T>();
    parallel_vectors(g.x.count(), [=](int64_t i, auto lanes) {
        const f32x16 v = load(x + i, lanes);
        store(y + i, v * sigmoid_of_2u(v), lanes);
    });
}

template <class T>
void backward_elements(const GeluBackward& g) {
    T* const dx = g.dx.as<T>();
    const T *const dy = g.dy.as<T>(), *const x = g.x.as<T>();
    parallel_vectors(g.x.count(), [=](int64_t i, auto lanes) {
        const f32x16 v = load(x + i, lanes), s = sigmoid_of_2u(v);
        // The slope of 2u times x, at an x for which it is finite: beyond 20, s (1 − s) is 0.
        const f32x16 near = max(splat(-20.0f), min(splat(20.0f), v)), square = near * near;
        const f32x16 slope = near * (square * (6 * root * cubic) + 2 * root);
        store(dx + i, load(dy + i, lanes) * (s + s * (1.0f - s) * slope), lanes);
    });
}

void forward(Context&, const GeluForward& g) {
    CLOVER_CHECK(g.x.rank == 2 && g.y.has_shape({g.x.shape[0], g.x.shape[1]}), g.y.describe(), " from ", g.x.describe());
    CLOVER_CHECK(g.y.dtype == g.x.dtype, g.y.describe(), " from ", g.x.describe());
    by_dtype(g.x.dtype, [&](auto t) { forward_elements<decltype(t)>(g); });
}

void backward(Context&, const GeluBackward& g) {
    CLOVER_CHECK(g.x.rank == 2, g.x.describe());
    for (const Tensor& t : {g.dx, g.dy})
        CLOVER_CHECK(t.has_shape({g.x.shape[0], g.x.shape[1]}) && t.dtype == g.x.dtype, t.describe(), " beside x ", g.x.describe());
    by_dtype(g.x.dtype, [&](auto t) { backward_elements<decltype(t)>(g); });
}

}  // namespace

const GeluOps gelu_cpu = {forward, backward};

}  // namespace clover
