// Matrix products against f64: all layouts of a linear layer and its backward, odd sizes, bias, accumulation, every dtype.
#include <omp.h>

#include "support.h"

using namespace clover;
using namespace clover::test;

namespace {

// op(t) as stored by rows, without the transposition.
std::vector<double> untransposed(const Owned& t, bool transposed) {
    const int64_t rows = t.t.rows(), columns = t.t.columns();
    std::vector<double> v = t.values(), u = v;
    if (transposed)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) u[size_t(j * rows + i)] = v[size_t(i * columns + j)];
    return u;
}

/// op(a) op(b) + bias + before; the last two may be empty.
std::vector<double> reference(const Gemm& g, const Owned& a, const Owned& b, const std::vector<double>& bias, const std::vector<double>& before) {
    const int64_t m = g.c.rows(), n = g.c.columns(), k = g.transpose_a ? g.a.rows() : g.a.columns();
    const std::vector<double> x = untransposed(a, g.transpose_a), w = untransposed(b, g.transpose_b);
    std::vector<double> c = before.empty() ? std::vector<double>(size_t(m * n)) : before;
    for (int64_t i = 0; i < m; i++) {
        double* row = c.data() + i * n;
        for (int64_t j = 0; j < n; j++) row[j] += bias.empty() ? 0 : bias[size_t(j)];
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++) row[j] += x[size_t(i * k + l)] * w[size_t(l * n + j)];
    }
    return c;
}

void run(const Device& device, const Gemm& g) {
    TestContext ctx(device);
    ctx.reserve(device.gemm.workspace_bytes(ctx, g));
    device.gemm.run(ctx, g);
}

struct Sizes {
    int64_t m, n, k;
};

void check_product(const Device& device, Sizes s, bool ta, bool tb, bool accumulate, bool with_bias, Dtype in, Dtype out) {
    Owned a = random_tensor(in, {ta ? s.k : s.m, ta ? s.m : s.k}, 1), b = random_tensor(in, {tb ? s.n : s.k, tb ? s.k : s.n}, 2);
    Owned c = random_tensor(out, {s.m, s.n}, 3), bias = random_tensor(in, {s.n}, 4);
    const std::vector<double> before = accumulate ? c.values() : std::vector<double>{};
    if (!accumulate) c.forget(device);
    const Gemm g{.c = c, .a = a, .b = b, .bias = with_bias ? bias.t : Tensor{}, .transpose_a = ta, .transpose_b = tb, .accumulate = accumulate};
    run(device, g);
    const double error = normalised_error(c.values(), reference(g, a, b, with_bias ? bias.values() : std::vector<double>{}, before));
    INFO(on(device), ", m ", s.m, " n ", s.n, " k ", s.k, " ta ", ta, " tb ", tb, " accumulate ", accumulate, " bias ", with_bias, " ", name_of(in), " ", name_of(out));
    // A 16-bit output: one rounding. Inputs are the same rounded numbers on both sides.
    CHECK(error <= (out == Dtype::f32 ? 1e-5 : rounding_of(out)));
}

}  // namespace

TEST_SUITE("gemm") {
    TEST_CASE("products of a linear layer against f64") {
        for (const Device& device : test_devices())
            for (Sizes s : {Sizes{1, 1, 1}, {2, 3, 5}, {17, 33, 15}, {64, 48, 96}, {31, 1024, 7}, {3, 2048, 65}, {16, in_harness(device) ? 40 : 512, 8200}})
                for (Dtype in : float_dtypes) {
                    const auto check = [&] {
                        check_product(device, s, false, true, false, true, in, in);              // y = x Wᵀ + b
                        check_product(device, s, false, true, false, false, in, Dtype::f32);     // logits
                        check_product(device, s, false, false, false, false, in, in);            // dx = dy W
                        check_product(device, s, true, false, true, false, in, Dtype::f32);      // dW += dyᵀ x
                        check_product(device, s, true, false, false, false, in, Dtype::f32);     // dW = dyᵀ x
                    };
                    in == Dtype::bf16 ? for_mma_models(device, check) : check();
                }
    }
    TEST_CASE("a product too small for several threads leaves their number as it was") {
        const int before = omp_get_max_threads();
        omp_set_num_threads(3);
        Owned a = random_tensor(Dtype::f32, {4, 4}, 1), c(Dtype::f32, {4, 4});
        run(find_device("cpu"), {.c = c, .a = a, .b = a});
        const int after = omp_get_max_threads();
        omp_set_num_threads(before);
        CHECK(after == 3);
    }
    TEST_CASE("a product of wrong shapes is refused") {
        for (const Device& device : test_devices()) {
            TestContext ctx(device);
            Owned a(Dtype::f32, {2, 3}), b(Dtype::f32, {4, 5}), c(Dtype::f32, {2, 5});
            CHECK_THROWS_AS(device.gemm.run(ctx, {.c = c, .a = a, .b = b}), Error);
        }
    }
    TEST_CASE("the same product gives the same bits, from one plan and from another, whatever the schedule") {
        for (const Device& device : test_devices())
            for (Dtype in : float_dtypes)
                for (Sizes s : {Sizes{100, 200, 300}, {7, 5, 33}}) {
                    INFO(on(device));
                    Owned a = random_tensor(in, {s.m, s.k}, 1), b = random_tensor(in, {s.n, s.k}, 2);
                    Owned c = unwritten(device, Dtype::f32, {s.m, s.n});
                    run(device, {.c = c, .a = a, .b = b, .transpose_b = true});
                    for (int seed : schedules(device)) {
                        const LaunchOrder order(device, seed);
                        Owned d = unwritten(device, Dtype::f32, {s.m, s.n});
                        const Gemm g{.c = d, .a = a, .b = b, .transpose_b = true};
                        TestContext ctx(device);
                        ctx.reserve(device.gemm.workspace_bytes(ctx, g));
                        for (int i = 0; i < 2; i++) {
                            device.gemm.run(ctx, g);
                            CHECK(same_bits(c, d));
                        }
                    }
                }
    }
}
