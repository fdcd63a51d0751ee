#include "pointwise_device.h"

using namespace clover;
using namespace clover::test;

namespace {

template <class Real>
Real plain_gelu(Real x) {
    const Real root = Real(0.79788456080286535588);  // √(2/π)
    return Real(0.5) * x * (1 + std::tanh(root * (x + Real(0.044715) * x * x * x)));
}
template <class Real>
Real plain_slope(Real x) {
    const Real root = Real(0.79788456080286535588), t = std::tanh(root * (x + Real(0.044715) * x * x * x));
    return Real(0.5) * (1 + t) + Real(0.5) * x * (1 - t * t) * root * (1 + 3 * Real(0.044715) * x * x);
}

void check_against_f64(const Device& device, Dtype dtype, int64_t N, int64_t F) {
    INFO(on(device)); CAPTURE(N); CAPTURE(F); CAPTURE(int(dtype));
    TestContext ctx(device);
    const Owned x = random_tensor(dtype, {N, F}, 1, 2), dy = random_tensor(dtype, {N, F}, 2);
    Owned y = unwritten(device, dtype, {N, F}), dx = unwritten(device, dtype, {N, F}), in_place = copy_of(dy);
    device.gelu.forward(ctx, {.y = y, .x = x});
    device.gelu.backward(ctx, {.dx = dx, .dy = dy, .x = x});
    device.gelu.backward(ctx, {.dx = in_place, .dy = in_place, .x = x});
    CHECK(same_bits(dx, in_place));

    std::vector<double> exact_y, exact_dx, float_y, float_dx;
    const std::vector<double> gradient = dy.values();
    for (size_t i = 0; double v : x.values()) {
        const double g = gradient[i++];
        exact_y.push_back(plain_gelu(v));
        exact_dx.push_back(g * plain_slope(v));
        float_y.push_back(stored(plain_gelu(float(v)), dtype));
        float_dx.push_back(stored(float(g) * plain_slope(float(v)), dtype));
    }
    check_close(y.values(), exact_y, float_y, dtype, 2);
    check_close(dx.values(), exact_dx, float_dx, dtype, 3);
}

/// y and slope of single numbers.
void check_extremes(const Device& device) {
    INFO(on(device));
    TestContext ctx(device);
    const std::vector<double> points = {0, 1e-30, -1e-30, 1, -1, 5, -5, -10, 12, 20, -20, 21, -21, 1e5, -1e5, 1e20, -1e20, 3e38, -3e38};
    const int64_t n = int64_t(points.size());
    Owned x(Dtype::f32, {1, n}), one(Dtype::f32, {1, n}), y(Dtype::f32, {1, n}), slope(Dtype::f32, {1, n});
    for (int64_t i = 0; i < n; i++) x.set(i, points[size_t(i)]), one.set(i, 1);
    device.gelu.forward(ctx, {.y = y, .x = x});
    device.gelu.backward(ctx, {.dx = slope, .dy = one, .x = x});
    for (int64_t i = 0; i < n; i++) {
        const double p = x.at(i), want = p > 20 ? p : p < -20 ? 0 : plain_gelu(p), want_slope = p > 20 ? 1 : p < -20 ? 0 : plain_slope(p);
        CAPTURE(p);
        CHECK(std::abs(y.at(i) - want) <= 1e-6 * std::abs(want) + 1e-12);
        CHECK(std::abs(slope.at(i) - want_slope) <= 1e-6);
    }
    x.set(0, NAN);
    device.gelu.forward(ctx, {.y = y, .x = x});
    device.gelu.backward(ctx, {.dx = slope, .dy = one, .x = x});
    CHECK(std::isnan(y.at(0)));
    CHECK(std::isnan(slope.at(0)));
}

TEST_SUITE("gelu") {
    TEST_CASE("forward and backward are the definition in f64") {
        for (const Device& device : test_devices())
            for (Dtype dtype : float_dtypes)
                for (int64_t N : {1, 3})
                    for (int64_t F : {1, 2, 15, 16, 17, 31, 33, 1000, 50021}) check_against_f64(device, dtype, N, F);
    }
    TEST_CASE("the slope's formula is a finite difference") {
        for (double x = -6; x < 6; x += 0.37)
            CHECK(std::abs(plain_slope(x) - finite_differences({x}, [](auto& v) { return plain_gelu(v[0]); })[0]) <= 1e-8);
    }
    TEST_CASE("published values") {
        // torch.nn.functional.gelu(x, approximate="tanh") at 1, 2, -1.
        CHECK(std::abs(plain_gelu(1.0) - 0.8411920) <= 1e-6);
        CHECK(std::abs(plain_gelu(2.0) - 1.9545977) <= 1e-6);
        CHECK(std::abs(plain_gelu(-1.0) + 0.1588080) <= 1e-6);
    }
    TEST_CASE("large, tiny and undefined numbers") {
        for (const Device& device : test_devices()) check_extremes(device);
    }
    TEST_CASE("same bits for any number of threads and any schedule") {
        for (const Device& device : test_devices())
            for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
                const int64_t F = in_harness(device) ? 5021 : 50021;
                check_repeatable(device, [&] {
                    TestContext ctx(device);
                    const Owned x = random_tensor(dtype, {3, F}, 1), dy = random_tensor(dtype, {3, F}, 2);
                    Owned y = unwritten(device, dtype, {3, F}), dx = unwritten(device, dtype, {3, F});
                    device.gelu.forward(ctx, {.y = y, .x = x});
                    device.gelu.backward(ctx, {.dx = dx, .dy = dy, .x = x});
                    return list(y, dx);
                });
            }
    }
}

}  // namespace
