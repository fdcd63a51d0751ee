#include "pointwise_device.h"

using namespace clover;
using namespace clover::test;

namespace {

constexpr int64_t counts[] = {1, 2, 15, 16, 17, 31, 33, 1000, 4097, 70001};

void check_add(const Device& device, int64_t n, Dtype o, Dtype p, Dtype q) {
    INFO(on(device)); CAPTURE(n); CAPTURE(int(o)); CAPTURE(int(p)); CAPTURE(int(q));
    TestContext ctx(device);
    Owned out = unwritten(device, o, {n}), a = random_tensor(p, {n}, 1), b = random_tensor(q, {n}, 2);
    device.elementwise.add(ctx, out, a, b);
    const std::vector<double> got = out.values(), x = a.values(), y = b.values();
    int64_t wrong = 0;
    for (size_t i = 0; i < size_t(n); i++) wrong += got[i] != stored(double(float(x[i] + y[i])), o);
    CHECK(wrong == 0);
    if (o == p) {
        device.elementwise.add(ctx, a, a, b);
        CHECK(same_bits(a, out));
    } else if (o == q) {
        device.elementwise.add(ctx, b, a, b);
        CHECK(same_bits(b, out));
    }
}

void check_cast(const Device& device, int64_t n, Dtype to, Dtype from) {
    INFO(on(device)); CAPTURE(n); CAPTURE(int(to)); CAPTURE(int(from));
    TestContext ctx(device);
    Owned out = unwritten(device, to, {n, 1}), in = random_tensor(from, {n}, 1);
    in.set(n / 2, NAN);
    in.set(n / 3, 1e-41);   // a denormal number of f32 and bf16
    in.set(n / 4, 1e-6);    // one of f16
    in.set(n / 5, -70000);  // beyond f16
    if (n > 2) in.set(n - 1, INFINITY);
    device.elementwise.cast(ctx, out, in);
    const std::vector<double> got = out.values(), x = in.values();
    int64_t wrong = 0;
    for (size_t i = 0; i < size_t(n); i++) {
        const double want = stored(x[i], to);
        wrong += std::isnan(want) ? !std::isnan(got[i]) : got[i] != want;
    }
    CHECK(wrong == 0);
}

void check_fill(const Device& device, int64_t n, Dtype dtype) {
    TestContext ctx(device);
    INFO(on(device)); CAPTURE(n);
    Owned out(dtype, {n + 1});
    device.elementwise.fill(ctx, Tensor(out.t.data, dtype, {n}), 0.3f);
    const std::vector<double> got = out.values();
    int64_t wrong = 0;
    for (size_t i = 0; i < size_t(n); i++) wrong += got[i] != stored(double(0.3f), dtype);
    CHECK(wrong == 0);
    CHECK(got[size_t(n)] == 0);
}

void check_column_sum(const Device& device, int64_t N, int64_t C, Dtype dtype) {
    INFO(on(device)); CAPTURE(N); CAPTURE(C); CAPTURE(int(dtype));
    const Owned x = random_tensor(dtype, {N, C}, 1, 1, 0.1);
    Owned sums = random_tensor(Dtype::f32, {C}, 2);
    std::vector<double> want = sums.values();
    for (int64_t i = 0; double v : x.values()) want[size_t(i++ % C)] += v;
    TestContext ctx(device, device.elementwise.column_sum_workspace_bytes(x));
    device.elementwise.column_sum(ctx, sums, x);
    CHECK(normalised_error(sums.values(), want) <= 1e-5);
}

void check_sum_of_squares(const Device& device, int64_t n) {
    INFO(on(device)); CAPTURE(n);
    const Owned x = random_tensor(Dtype::f32, {n}, 1);
    Owned result = unwritten(device, Dtype::f32, {1});
    double want = 0;
    for (double v : x.values()) want += v * v;
    TestContext ctx(device, device.elementwise.sum_of_squares_workspace_bytes(x));
    device.elementwise.sum_of_squares(ctx, result, x);
    CHECK(std::abs(result.at(0) - want) <= 1e-7 * want);  // f32's rounding of a sum in f64
}

TEST_SUITE("elementwise") {
    TEST_CASE("add") {
        for (const Device& device : test_devices())
            for (int64_t n : counts)
                for (Dtype o : float_dtypes)
                    for (Dtype p : float_dtypes)
                        for (Dtype q : float_dtypes) check_add(device, n, o, p, q);
    }
    TEST_CASE("cast") {
        for (const Device& device : test_devices())
            for (int64_t n : counts)
                for (Dtype to : float_dtypes)
                    for (Dtype from : float_dtypes) check_cast(device, n, to, from);
    }
    TEST_CASE("fill") {
        for (const Device& device : test_devices())
            for (int64_t n : counts)
                for (Dtype dtype : float_dtypes) check_fill(device, n, dtype);
    }
    TEST_CASE("column sums") {
        for (const Device& device : test_devices())
            for (Dtype dtype : float_dtypes)
                for (int64_t N : {1, 2, 15, 17, 33, 600, 5001})
                    for (int64_t C : {1, 2, 15, 16, 17, 33, 300})
                        if (!in_harness(device) || N < 5000 || C < 33) check_column_sum(device, N, C, dtype);
    }
    TEST_CASE("sum of squares") {
        for (const Device& device : test_devices()) {
            for (int64_t n : counts) check_sum_of_squares(device, n);
            check_sum_of_squares(device, 8192);
            check_sum_of_squares(device, 1000003);
        }
    }
    TEST_CASE("sum of squares beyond f32's range of exact sums") {
        for (const Device& device : test_devices()) {
            Owned x(Dtype::f32, {1 << 20}), result = unwritten(device, Dtype::f32, {1});
            x.fill([](int64_t i) { return i == 0 ? 8192 : 1; });  // the first one's square is 2^26: in f32 the ones beside it would be lost
            TestContext ctx(device, device.elementwise.sum_of_squares_workspace_bytes(x));
            device.elementwise.sum_of_squares(ctx, result, x);
            CHECK(result.at(0) == double(float((1 << 26) + (1 << 20) - 1)));
        }
    }
    TEST_CASE("the factor of clipping: no limit, below it, above it, a norm that is not finite") {
        for (const Device& device : test_devices()) {
            const auto factor = [&](double squares_, float limit, float scale = 1) {
                Owned squares(Dtype::f32, {1}), result = unwritten(device, Dtype::f32, {1});
                squares.set(0, squares_);
                TestContext ctx(device);
                device.elementwise.clip_factor(ctx, result, squares, limit, scale);
                return result.at(0);
            };
            INFO(on(device));
            for (double squares : {0.0, 0.25, 9.0, 1e30}) CHECK(factor(squares, 0) == 1);
            for (double squares : {0.0, 1e-40, 0.25, 0.999}) CHECK(factor(squares, 1) == 1);
            CHECK(factor(9, 1) == doctest::Approx(1 / 3.000001).epsilon(1e-6));
            CHECK(factor(1e30, 0.5) == doctest::Approx(0.5e-15).epsilon(1e-6));
            CHECK(factor(0.25, 0.1f) == doctest::Approx(0.1 / 0.500001).epsilon(1e-6));
            // Of a gradient 1024 times too large: what the factor does without, over 1024.
            CHECK(factor(9.0 * 0x1p20, 1, 1024) == doctest::Approx(1 / 3.000001 / 1024).epsilon(1e-6));
            CHECK(factor(0.25 * 0x1p20, 1, 1024) == 1.0 / 1024);
            CHECK(factor(9.0, 0, 1024) == 1.0 / 1024);
            for (double squares : {double(NAN), double(INFINITY)})
                for (float limit : {0.0f, 1.0f}) CHECK(std::isnan(factor(squares, limit)));
        }
    }
    TEST_CASE("nothing to do, and counts that differ") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            Owned none(Dtype::f32, {0}), no_rows(Dtype::f32, {0, 3}), sums = random_tensor(Dtype::f32, {3}, 1), result(Dtype::f32, {1});
            TestContext ctx(device, std::max(device.elementwise.column_sum_workspace_bytes(no_rows), device.elementwise.sum_of_squares_workspace_bytes(none)));
            const std::vector<double> before = sums.values();
            device.elementwise.add(ctx, none, none, none);
            device.elementwise.column_sum(ctx, sums, no_rows);
            CHECK(sums.values() == before);
            result.forget(device);
            device.elementwise.sum_of_squares(ctx, result, none);
            CHECK(result.at(0) == 0);
            CHECK_THROWS_AS(device.elementwise.cast(ctx, none, sums), Error);
            CHECK_THROWS_AS(device.elementwise.add(ctx, sums, sums, result), Error);
        }
    }
    TEST_CASE("same bits for any number of threads and any schedule") {
        for (const Device& device : test_devices())
            check_repeatable(device, [&] {
                const int64_t N = in_harness(device) ? 201 : 1001, C = in_harness(device) ? 133 : 333;
                const Owned x = random_tensor(Dtype::f32, {N, C}, 1), y = random_tensor(Dtype::bf16, {N, C}, 2);
                Owned sum = unwritten(device, Dtype::bf16, {N, C}), columns(Dtype::f32, {C}), narrow_columns(Dtype::f32, {C}), squares = unwritten(device, Dtype::f32, {1});
                const ElementwiseOps& ops = device.elementwise;
                TestContext ctx(device, std::max({ops.column_sum_workspace_bytes(x), ops.column_sum_workspace_bytes(y), ops.sum_of_squares_workspace_bytes(x)}));
                ops.add(ctx, sum, x, y);
                ops.column_sum(ctx, columns, x);
                ops.column_sum(ctx, narrow_columns, y);
                ops.sum_of_squares(ctx, squares, x);
                return list(sum, columns, narrow_columns, squares);
            });
    }
}

}  // namespace
