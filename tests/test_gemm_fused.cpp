// What is done with a matrix product besides (gemm.h): GeLU behind it, the slope of GeLU on its result, the bias gradient beside it.
// Against f64 on every device, whether the device fuses it or not.
#include "support.h"

using namespace clover;
using namespace clover::test;

namespace {

void run(const Device& device, const Gemm& g) {
    TestContext ctx(device);
    ctx.reserve(device.gemm.workspace_bytes(ctx, g));
    device.gemm.run(ctx, g);
}

struct Sizes {
    int64_t m, n, k;
};
// The last are multiples of 8, as cuBLASLt's fused GeLU needs them.
constexpr Sizes all_sizes[] = {{1, 1, 1}, {17, 33, 15}, {5, 40, 64}, {64, 96, 32}};

/// Where element (row, column) of a factor lies.
struct Stride {
    int64_t row, column;
};
/// (m, n) = a b.
std::vector<double> product(const Owned& a, Stride sa, const Owned& b, Stride sb, Sizes s) {
    const std::vector<double> x = a.values(), y = b.values();
    std::vector<double> c(size_t(s.m * s.n));
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++)
            for (int64_t k = 0; k < s.k; k++) c[size_t(i * s.n + j)] += x[size_t(i * sa.row + k * sa.column)] * y[size_t(k * sb.row + j * sb.column)];
    return c;
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

double rounded_once(Dtype dtype) { return dtype == Dtype::f32 ? 1e-5 : rounding_of(dtype); }

// A GeLU that is fused, in bf16, has the error of the hardware's tanh on top, which can move the result to the next number. One that is not
// sees the rounded x.
double tolerance(const Device& device, Dtype dtype) { return (dtype != Dtype::f32 && is_cuda(device) ? 2 : 1) * rounded_once(dtype); }

void check_gelu(const Device& device, Sizes s, Dtype dtype, Dtype bias_dtype, bool with_bias) {
    Owned x = random_tensor(dtype, {s.m, s.k}, 1), w = random_tensor(dtype, {s.n, s.k}, 2, 1 / std::sqrt(double(s.k))), b = random_tensor(bias_dtype, {s.n}, 3);
    Owned y = unwritten(device, dtype, {s.m, s.n}), before = unwritten(device, dtype, {s.m, s.n});
    run(device, {.c = y, .a = x, .b = w, .bias = with_bias ? b.t : Tensor{}, .transpose_b = true, .pre_activation = before});
    std::vector<double> sum = product(x, {s.k, 1}, w, {1, s.k}, s), wanted;
    for (int64_t i = 0; i < s.m * s.n; i++) {
        if (with_bias) sum[size_t(i)] += b.at(i % s.n);
        wanted.push_back(gelu(sum[size_t(i)]));
    }
    INFO(text(device.name, ", m ", s.m, " n ", s.n, " k ", s.k, " ", name_of(dtype), " bias ", with_bias, " ", name_of(bias_dtype)));
    CHECK(normalised_error(before.values(), sum) <= rounded_once(dtype));
    CHECK(normalised_error(y.values(), wanted) <= tolerance(device, dtype));
}

void check_gelu_backward(const Device& device, Sizes s, Dtype dtype) {
    Owned dy = random_tensor(dtype, {s.m, s.k}, 1), w = random_tensor(dtype, {s.k, s.n}, 2), x = random_tensor(dtype, {s.m, s.n}, 3);
    Owned dx = unwritten(device, dtype, {s.m, s.n});
    run(device, {.c = dx, .a = dy, .b = w, .gelu_input = x});
    std::vector<double> wanted = product(dy, {s.k, 1}, w, {s.n, 1}, s);
    const std::vector<double> at = x.values();
    for (size_t i = 0; i < wanted.size(); i++) wanted[i] *= gelu_slope(at[i]);
    INFO(text(device.name, ", m ", s.m, " n ", s.n, " k ", s.k, " ", name_of(dtype)));
    CHECK(normalised_error(dx.values(), wanted) <= tolerance(device, dtype));
}

void check_bias_gradient(const Device& device, Sizes s, Dtype in, Dtype out, bool accumulate) {
    Owned dy = random_tensor(in, {s.k, s.m}, 1), x = random_tensor(in, {s.k, s.n}, 2);
    Owned dw = random_tensor(out, {s.m, s.n}, 3), db = random_tensor(Dtype::f32, {s.m}, 4);
    std::vector<double> wanted = product(dy, {1, s.m}, x, {s.n, 1}, s), sums = db.values();
    const std::vector<double> before = dw.values(), gradient = dy.values();
    for (size_t i = 0; i < wanted.size(); i++) wanted[i] += accumulate ? before[i] : 0;
    for (size_t i = 0; i < gradient.size(); i++) sums[i % size_t(s.m)] += gradient[i];
    if (!accumulate) dw.forget(device);
    run(device, {.c = dw, .a = dy, .b = x, .transpose_a = true, .accumulate = accumulate, .bias_gradient = db});
    INFO(text(device.name, ", m ", s.m, " n ", s.n, " k ", s.k, " ", name_of(in), " ", name_of(out), " accumulate ", accumulate));
    CHECK(normalised_error(dw.values(), wanted) <= rounded_once(out));
    CHECK(normalised_error(db.values(), sums) <= 1e-5);
}

}  // namespace

TEST_SUITE("gemm") {
    TEST_CASE("GeLU behind a product: the pre-activation and its GeLU") {
        for (const Device& device : test_devices())
            for (Sizes s : all_sizes) {
                for (Dtype dtype : float_dtypes)
                    for (bool bias : {false, true}) check_gelu(device, s, dtype, dtype, bias);
                check_gelu(device, s, Dtype::bf16, Dtype::f32, true);  // recipe mixed
                check_gelu(device, s, Dtype::f16, Dtype::f32, true);
            }
    }
    TEST_CASE("the slope of GeLU on a product") {
        for (const Device& device : test_devices())
            for (Sizes s : all_sizes)
                for (Dtype dtype : float_dtypes) check_gelu_backward(device, s, dtype);
    }
    TEST_CASE("the bias gradient beside a product adds up, whether the product does or not") {
        for (const Device& device : test_devices())
            for (Sizes s : all_sizes)
                for (bool accumulate : {false, true}) {
                    for (Dtype dtype : float_dtypes) check_bias_gradient(device, s, dtype, Dtype::f32, accumulate);
                    for (Dtype dtype : {Dtype::bf16, Dtype::f16}) check_bias_gradient(device, s, dtype, dtype, accumulate);
                }
    }
}
