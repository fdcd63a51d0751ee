#include "pointwise_device.h"

using namespace clover;
using namespace clover::test;

namespace {

constexpr Dtype both[] = {Dtype::f32, Dtype::bf16};
constexpr int64_t counts[] = {1, 2, 15, 16, 17, 31, 33, 1000, 4097, 70001};

void check_add(const ElementwiseOps& ops, int64_t n, Dtype o, Dtype p, Dtype q) {
    CAPTURE(n); CAPTURE(int(o)); CAPTURE(int(p)); CAPTURE(int(q));
    TestContext ctx(bare_device(), 64);
    Owned out(o, {n}), a = random_tensor(p, {n}, 1), b = random_tensor(q, {n}, 2);
    ops.add(ctx, out, a, b);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += out.at(i) != stored(double(float(a.at(i) + b.at(i))), o);
    CHECK(wrong == 0);
    if (o == p) {
        ops.add(ctx, a, a, b);
        CHECK(same_bits(a, out));
    } else if (o == q) {
        ops.add(ctx, b, a, b);
        CHECK(same_bits(b, out));
    }
}

void check_cast(const ElementwiseOps& ops, int64_t n, Dtype to, Dtype from) {
    CAPTURE(n); CAPTURE(int(to)); CAPTURE(int(from));
    TestContext ctx(bare_device(), 64);
    Owned out(to, {n, 1}), in = random_tensor(from, {n}, 1);
    in.set(n / 2, NAN);
    in.set(n / 3, 1e-41);  // a denormal number of both dtypes
    if (n > 2) in.set(n - 1, INFINITY);
    ops.cast(ctx, out, in);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        const double want = stored(in.at(i), to);
        wrong += std::isnan(want) ? !std::isnan(out.at(i)) : out.at(i) != want;
    }
    CHECK(wrong == 0);
}

void check_fill(const ElementwiseOps& ops, int64_t n, Dtype dtype) {
    TestContext ctx(bare_device(), 64);
    Owned out(dtype, {n + 1});
    ops.fill(ctx, Tensor(out.t.data, dtype, {n}), 0.3f);
    for (int64_t i = 0; i < n; i++) CHECK(out.at(i) == stored(double(0.3f), dtype));
    CHECK(out.at(n) == 0);
}

void check_column_sum(const ElementwiseOps& ops, int64_t N, int64_t C, Dtype dtype) {
    CAPTURE(N); CAPTURE(C); CAPTURE(int(dtype));
    const Owned x = random_tensor(dtype, {N, C}, 1, 1, 0.1);
    Owned sums = random_tensor(Dtype::f32, {C}, 2);
    std::vector<double> want = sums.values();
    for (int64_t i = 0; i < N * C; i++) want[size_t(i % C)] += x.at(i);
    TestContext ctx(bare_device(), ops.column_sum_workspace_bytes(x));
    ops.column_sum(ctx, sums, x);
    CHECK(normalised_error(sums.values(), want) <= 1e-5);
}

void check_sum_of_squares(const ElementwiseOps& ops, int64_t n) {
    CAPTURE(n);
    const Owned x = random_tensor(Dtype::f32, {n}, 1);
    Owned result(Dtype::f32, {1});
    double want = 0;
    for (int64_t i = 0; i < n; i++) want += x.at(i) * x.at(i);
    TestContext ctx(bare_device(), ops.sum_of_squares_workspace_bytes(x));
    ops.sum_of_squares(ctx, result, x);
    CHECK(std::abs(result.at(0) - want) <= 1e-7 * want);  // f32's rounding of a sum in f64
}

TEST_SUITE("elementwise") {
    TEST_CASE("add") {
        for (int64_t n : counts)
            for (Dtype o : both)
                for (Dtype p : both)
                    for (Dtype q : both) check_add(elementwise_cpu, n, o, p, q);
    }
    TEST_CASE("cast") {
        for (int64_t n : counts)
            for (Dtype to : both)
                for (Dtype from : both) check_cast(elementwise_cpu, n, to, from);
    }
    TEST_CASE("fill") {
        for (int64_t n : counts)
            for (Dtype dtype : both) check_fill(elementwise_cpu, n, dtype);
    }
    TEST_CASE("column sums") {
        for (Dtype dtype : both)
            for (int64_t N : {1, 2, 15, 17, 33, 600, 5001})
                for (int64_t C : {1, 2, 15, 16, 17, 33, 300}) check_column_sum(elementwise_cpu, N, C, dtype);
    }
    TEST_CASE("sum of squares") {
        for (int64_t n : counts) check_sum_of_squares(elementwise_cpu, n);
        check_sum_of_squares(elementwise_cpu, 8192);
        check_sum_of_squares(elementwise_cpu, 1000003);
    }
    TEST_CASE("sum of squares beyond f32's range of exact sums") {
        Owned x(Dtype::f32, {1 << 20}), result(Dtype::f32, {1});
        TestContext ctx(bare_device(), elementwise_cpu.sum_of_squares_workspace_bytes(x));
        elementwise_cpu.fill(ctx, x, 1.0f);
        x.set(0, 8192);  // its square is 2^26: in f32 the ones beside it would be lost
        elementwise_cpu.sum_of_squares(ctx, result, x);
        CHECK(result.at(0) == double(float((1 << 26) + (1 << 20) - 1)));
    }
    TEST_CASE("nothing to do, and counts that differ") {
        TestContext ctx(bare_device(), 64);
        Owned none(Dtype::f32, {0}), no_rows(Dtype::f32, {0, 3}), sums = random_tensor(Dtype::f32, {3}, 1), result(Dtype::f32, {1});
        const std::vector<double> before = sums.values();
        elementwise_cpu.add(ctx, none, none, none);
        elementwise_cpu.column_sum(ctx, sums, no_rows);
        CHECK(sums.values() == before);
        elementwise_cpu.sum_of_squares(ctx, result, none);
        CHECK(result.at(0) == 0);
        CHECK_THROWS_AS(elementwise_cpu.cast(ctx, none, sums), Error);
        CHECK_THROWS_AS(elementwise_cpu.add(ctx, sums, sums, result), Error);
    }
    TEST_CASE("same bits for any number of threads") {
        check_thread_independence([&] {
            const Owned x = random_tensor(Dtype::f32, {1001, 333}, 1), y = random_tensor(Dtype::bf16, {1001, 333}, 2);
            Owned sum(Dtype::bf16, {1001, 333}), columns(Dtype::f32, {333}), narrow_columns(Dtype::f32, {333}), squares(Dtype::f32, {1});
            TestContext ctx(bare_device());
            elementwise_cpu.add(ctx, sum, x, y);
            elementwise_cpu.column_sum(ctx, columns, x);
            elementwise_cpu.column_sum(ctx, narrow_columns, y);
            elementwise_cpu.sum_of_squares(ctx, squares, x);
            return list(sum, columns, narrow_columns, squares);
        });
    }
}

}  // namespace
