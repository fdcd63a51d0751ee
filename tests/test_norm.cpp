#include "pointwise_device.h"

using namespace clover;
using namespace clover::test;

namespace {

struct NormShape {
    NormKind kind;
    int64_t N, C;
    double eps;
};
struct Normed {
    std::vector<double> s, y, mean, rstd;
};
struct NormGradients {
    std::vector<double> dx, dweight, dbias;
};

/// The definition, in Real; s and y rounded as stored. bias may be empty.
template <class Real>
Normed plain_forward(NormShape n, const std::vector<double>& x, const std::vector<double>& delta, const std::vector<double>& weight,
                     const std::vector<double>& bias, Dtype storage) {
    Normed r;
    for (int64_t row = 0; row < n.N; row++) {
        std::vector<Real> s(static_cast<size_t>(n.C));
        Real mean = 0, variance = 0;
        for (int64_t c = 0; c < n.C; c++) {
            const size_t at = size_t(row * n.C + c);
            s[size_t(c)] = Real(stored(double(Real(x[at]) + (delta.empty() ? Real(0) : Real(delta[at]))), storage));
            mean += s[size_t(c)] / Real(n.C);
        }
        if (n.kind == NormKind::rmsnorm) mean = 0;
        for (Real v : s) variance += (v - mean) * (v - mean) / Real(n.C);
        const Real rstd = 1 / std::sqrt(variance + Real(n.eps));
        for (size_t c = 0; c < s.size(); c++) {
            r.s.push_back(double(s[c]));
            r.y.push_back(stored(double((s[c] - mean) * rstd * Real(weight[c]) + (bias.empty() ? Real(0) : Real(bias[c]))), storage));
        }
        r.mean.push_back(double(mean));
        r.rstd.push_back(double(rstd));
    }
    return r;
}

template <class Real>
NormGradients plain_backward(NormShape n, const Normed& f, const std::vector<double>& dy, const std::vector<double>& weight,
                             const std::vector<double>& dx_before, Dtype storage) {
    const size_t C = size_t(n.C);
    NormGradients r{dx_before, std::vector<double>(C), std::vector<double>(C)};
    std::vector<Real> dweight(C), dbias(C);
    for (size_t row = 0; row < size_t(n.N); row++) {
        const Real mean = Real(f.mean[row]), rstd = Real(f.rstd[row]);
        Real mean_g = 0, mean_g_xhat = 0;
        for (size_t c = 0; c < C; c++) {
            const Real g = Real(dy[row * C + c]) * Real(weight[c]), xhat = (Real(f.s[row * C + c]) - mean) * rstd;
            mean_g += g / Real(n.C);
            mean_g_xhat += g * xhat / Real(n.C);
            dweight[c] += Real(dy[row * C + c]) * xhat;
            dbias[c] += Real(dy[row * C + c]);
        }
        if (n.kind == NormKind::rmsnorm) mean_g = 0;
        for (size_t c = 0; c < C; c++) {
            const Real g = Real(dy[row * C + c]) * Real(weight[c]), xhat = (Real(f.s[row * C + c]) - mean) * rstd;
            double& dx = r.dx[row * C + c];
            dx = stored(double(Real(dx) + (g - mean_g - xhat * mean_g_xhat) * rstd), storage);
        }
    }
    for (size_t c = 0; c < C; c++) r.dweight[c] = double(dweight[c]), r.dbias[c] = double(dbias[c]);
    return r;
}

struct Run {
    Owned y, sum, mean, rstd;
};

Run run_forward(const Device& device, NormShape n, Tensor x, Tensor delta, Tensor weight, Tensor bias) {
    TestContext ctx(device);
    const bool layernorm = n.kind == NormKind::layernorm;
    Run r{unwritten(device, x.dtype, {n.N, n.C}), delta.present() ? unwritten(device, x.dtype, {n.N, n.C}) : Owned(x.dtype, {n.N, n.C}),
          layernorm ? unwritten(device, Dtype::f32, {n.N}) : Owned(Dtype::f32, {n.N}), unwritten(device, Dtype::f32, {n.N})};
    device.norm.forward(ctx, {.kind = n.kind, .eps = float(n.eps), .y = r.y, .sum = delta.present() ? r.sum.t : Tensor{},
                      .mean = layernorm ? r.mean.t : Tensor{}, .rstd = r.rstd, .x = x, .delta = delta, .weight = weight, .bias = bias});
    return r;
}

void check_forward(const Device& device, NormShape n, Dtypes dtypes, bool with_delta, bool with_bias) {
    INFO(on(device)); CAPTURE(int(n.kind)); CAPTURE(n.N); CAPTURE(n.C); CAPTURE(name_of(dtypes.activation)); CAPTURE(name_of(dtypes.weight));
    CAPTURE(with_delta); CAPTURE(with_bias);
    const Owned x = random_tensor(dtypes.activation, {n.N, n.C}, 1, 2, 0.5), delta = random_tensor(dtypes.activation, {n.N, n.C}, 2);
    const Owned weight = random_tensor(dtypes.weight, {n.C}, 3, 1, 1), bias = random_tensor(dtypes.weight, {n.C}, 4);
    const Run r = run_forward(device, n, x, with_delta ? delta.t : Tensor{}, weight, with_bias ? bias.t : Tensor{});

    const auto d = with_delta ? delta.values() : std::vector<double>{}, b = with_bias ? bias.values() : std::vector<double>{};
    const Normed exact = plain_forward<double>(n, x.values(), d, weight.values(), b, Dtype::f32);
    const Normed plain = plain_forward<float>(n, x.values(), d, weight.values(), b, dtypes.activation);
    check_close(r.y.values(), exact.y, plain.y, dtypes.activation, 2);
    if (with_delta) check_close(r.sum.values(), exact.s, plain.s, dtypes.activation, 2);
    // The statistics are those of the stored sum, in f32 whatever the activations are.
    const Normed of_stored =
        plain_forward<double>(n, with_delta ? r.sum.values() : x.values(), {}, weight.values(), b, Dtype::f32);
    CHECK(normalised_error(r.rstd.values(), of_stored.rstd) <= 1e-6);
    if (n.kind == NormKind::layernorm) CHECK(normalised_error(r.mean.values(), of_stored.mean) <= 1e-5);
}

void check_backward(const Device& device, NormShape n, Dtypes dtypes, bool accumulate, bool with_bias) {
    INFO(on(device)); CAPTURE(int(n.kind)); CAPTURE(n.N); CAPTURE(n.C); CAPTURE(name_of(dtypes.activation)); CAPTURE(name_of(dtypes.weight));
    CAPTURE(accumulate); CAPTURE(with_bias);
    const bool layernorm = n.kind == NormKind::layernorm;
    const Owned x = random_tensor(dtypes.activation, {n.N, n.C}, 1, 2, 0.5), dy = random_tensor(dtypes.activation, {n.N, n.C}, 2);
    const Owned weight = random_tensor(dtypes.weight, {n.C}, 3, 1, 1);
    Owned dx = random_tensor(dtypes.activation, {n.N, n.C}, 4), dweight(Dtype::f32, {n.C}), dbias(Dtype::f32, {n.C});
    const std::vector<double> before = accumulate ? dx.values() : std::vector<double>(size_t(n.N * n.C));
    if (!accumulate) dx.forget(device);
    dweight.fill([](int64_t) { return 1; });
    dbias.fill([](int64_t) { return -1; });

    const Run f = run_forward(device, n, x, {}, weight, {});
    const NormBackward call{.kind = n.kind, .dx = dx, .accumulate_dx = accumulate, .dweight = dweight,
                            .dbias = with_bias ? dbias.t : Tensor{}, .dy = dy, .x = x, .weight = weight,
                            .mean = layernorm ? f.mean.t : Tensor{}, .rstd = f.rstd};
    TestContext ctx(device, device.norm.backward_workspace_bytes(call));
    device.norm.backward(ctx, call);

    const Normed forward = plain_forward<double>(n, x.values(), {}, weight.values(), {}, Dtype::f32);
    NormGradients exact = plain_backward<double>(n, forward, dy.values(), weight.values(), before, Dtype::f32);
    NormGradients plain = plain_backward<float>(n, forward, dy.values(), weight.values(), before, dtypes.activation);
    for (double& v : exact.dweight) v += 1;
    for (double& v : exact.dbias) v -= 1;
    check_close(dx.values(), exact.dx, plain.dx, dtypes.activation, 3);
    CHECK(normalised_error(dweight.values(), exact.dweight) <= 1e-5);
    CHECK(normalised_error(dbias.values(), with_bias ? exact.dbias : std::vector<double>(size_t(n.C), -1)) <= 1e-5);
}

/// The formulas of plain_backward against differences of plain_forward.
void check_formulas(NormShape n) {
    const std::vector<double> x = random_tensor(Dtype::f32, {n.N, n.C}, 1).values(), dy = random_tensor(Dtype::f32, {n.N, n.C}, 2).values();
    const std::vector<double> weight = random_tensor(Dtype::f32, {n.C}, 3).values(), bias = random_tensor(Dtype::f32, {n.C}, 4).values();
    const auto loss = [&](const std::vector<double>& x_, const std::vector<double>& w_, const std::vector<double>& b_) {
        const Normed f = plain_forward<double>(n, x_, {}, w_, b_, Dtype::f32);
        double sum = 0;
        for (size_t i = 0; i < dy.size(); i++) sum += dy[i] * f.y[i];
        return sum;
    };
    const NormGradients g = plain_backward<double>(n, plain_forward<double>(n, x, {}, weight, bias, Dtype::f32), dy, weight,
                                                   std::vector<double>(x.size()), Dtype::f32);
    CHECK(normalised_error(g.dx, finite_differences(x, [&](auto& v) { return loss(v, weight, bias); })) <= 1e-6);
    CHECK(normalised_error(g.dweight, finite_differences(weight, [&](auto& v) { return loss(x, v, bias); })) <= 1e-6);
    CHECK(normalised_error(g.dbias, finite_differences(bias, [&](auto& v) { return loss(x, weight, v); })) <= 1e-6);
}

/// y of one f32 or bf16 row by a norm of unit weight without bias.
std::vector<double> norm_of(const Device& device, NormKind kind, const std::vector<double>& row, Dtype weight_dtype = Dtype::f32,
                            Dtype dtype = Dtype::f32) {
    const int64_t C = int64_t(row.size());
    Owned x(dtype, {1, C}), weight(weight_dtype, {C});
    for (int64_t c = 0; c < C; c++) x.set(c, row[size_t(c)]), weight.set(c, 1);
    return run_forward(device, {kind, 1, C, 1e-5}, x, {}, weight, {}).y.values();
}

void check_far_means(const Device& device) {
    const auto near = [](const std::vector<double>& y, const std::vector<double>& want, double tolerance) {
        REQUIRE(y.size() == want.size());
        for (size_t i = 0; i < y.size(); i++) CHECK(std::abs(y[i] - want[i]) <= tolerance);
    };
    near(norm_of(device, NormKind::layernorm, {40000, 40001, 40002, 40003}), {-1.341635, -0.447212, 0.447212, 1.341635}, 1e-6);
    std::vector<double> close;
    for (int i = 0; i < 8; i++) close.push_back(4096 + i / 256.0);
    near(norm_of(device, NormKind::layernorm, close),
         {-1.440273, -1.028767, -0.617260, -0.205753, 0.205753, 0.617260, 1.028767, 1.440273}, 1e-6);
    near(norm_of(device, NormKind::layernorm, {256, 258, 260, 262}, Dtype::f32, Dtype::bf16),
         {stored(-1.341639, Dtype::bf16), stored(-0.447213, Dtype::bf16), stored(0.447213, Dtype::bf16), stored(1.341639, Dtype::bf16)}, 0);
    // Whatever the constant and the width, the deviations are 0.
    for (double constant : {1234.5, 0.1, -3e7})
        for (size_t C : {1, 33, 256, 1000})
            for (double y : norm_of(device, NormKind::layernorm, std::vector<double>(C, constant))) CHECK(y == 0);
    for (double y : norm_of(device, NormKind::rmsnorm, std::vector<double>(33, 0.0))) CHECK(y == 0);
}

/// In rows far from 0 the mean is right to the last bit of f32 (2^-8 at 40000), and the variance does not see what it lacks.
void check_far_rows(const Device& device, double mean, int64_t C) {
    CAPTURE(mean); CAPTURE(C);
    const NormShape n{NormKind::layernorm, 1, C, 1e-5};
    const Owned x = random_tensor(Dtype::f32, {1, C}, 9, 1, mean);
    Owned weight(Dtype::f32, {C});
    for (int64_t c = 0; c < C; c++) weight.set(c, 1);
    const Run r = run_forward(device, n, x, {}, weight, {});
    const Normed exact = plain_forward<double>(n, x.values(), {}, weight.values(), {}, Dtype::f32);
    const double last_bit = std::nextafter(float(mean), INFINITY) - float(mean);
    CHECK(std::abs(r.mean.at(0) - exact.mean[0]) <= last_bit);
    CHECK(normalised_error(r.rstd.values(), exact.rstd) <= 1e-6);
    for (int64_t c = 0; c < C; c++) CHECK(std::abs(r.y.at(c) - exact.y[size_t(c)]) <= last_bit * exact.rstd[0] + 1e-5);
}

void check_degenerate_gradients(const Device& device) {
    for (NormKind kind : {NormKind::layernorm, NormKind::rmsnorm}) {
        const int64_t C = 256;
        const bool layernorm = kind == NormKind::layernorm;
        Owned x(Dtype::f32, {1, C}), weight(Dtype::f32, {C}), dx(Dtype::f32, {1, C}), dweight(Dtype::f32, {C});
        for (int64_t c = 0; c < C; c++) x.set(c, layernorm ? 1234.5 : 0), weight.set(c, 1);
        const Owned dy = random_tensor(Dtype::f32, {1, C}, 1);
        const Run f = run_forward(device, {kind, 1, C, 1e-5}, x, {}, weight, {});
        const NormBackward call{.kind = kind, .dx = dx, .dweight = dweight, .dy = dy, .x = x, .weight = weight,
                                .mean = layernorm ? f.mean.t : Tensor{}, .rstd = f.rstd};
        TestContext ctx(device, device.norm.backward_workspace_bytes(call));
        device.norm.backward(ctx, call);
        for (double v : dx.values()) CHECK(std::isfinite(v));
        for (double v : dweight.values()) CHECK(v == 0);
    }
}

std::vector<Owned> forward_and_backward(const Device& device, NormShape n, Dtype dtype) {
    const Owned x = random_tensor(dtype, {n.N, n.C}, 1), delta = random_tensor(dtype, {n.N, n.C}, 2), dy = random_tensor(dtype, {n.N, n.C}, 3);
    const Owned weight = random_tensor(dtype, {n.C}, 4), bias = random_tensor(dtype, {n.C}, 5);
    Owned dx = unwritten(device, dtype, {n.N, n.C}), dweight(Dtype::f32, {n.C}), dbias(Dtype::f32, {n.C});
    Run f = run_forward(device, n, x, delta, weight, bias);
    const NormBackward call{.kind = n.kind, .dx = dx, .dweight = dweight, .dbias = dbias, .dy = dy, .x = f.sum, .weight = weight,
                            .mean = n.kind == NormKind::layernorm ? f.mean.t : Tensor{}, .rstd = f.rstd};
    TestContext ctx(device, device.norm.backward_workspace_bytes(call));
    device.norm.backward(ctx, call);
    return list(f.y, f.sum, f.mean, f.rstd, dx, dweight, dbias);
}

constexpr int64_t row_counts[] = {1, 2, 17, 33}, widths[] = {1, 2, 15, 16, 17, 31, 33, 64, 100, 1000};
constexpr int64_t wide[] = {768, 2048, 4096, 5120, 14336};  // of published models, the last BLOOM-176B's
constexpr NormKind kinds[] = {NormKind::layernorm, NormKind::rmsnorm};
TEST_SUITE("norm") {
    TEST_CASE("forward is the definition in f64") {
        for (const Device& device : test_devices())
            for (NormKind kind : kinds)
                for (Dtypes dtypes : all_dtypes)
                    for (int64_t N : row_counts)
                        for (int64_t C : widths) {
                            check_forward(device, {kind, N, C, 1e-5}, dtypes, false, true);
                            check_forward(device, {kind, N, C, 1e-5}, dtypes, true, C % 2 == 0);
                        }
    }
    TEST_CASE("forward of wide rows") {
        for (const Device& device : test_devices())
            for (Dtypes dtypes : all_dtypes)
                for (int64_t C : wide) check_forward(device, {NormKind::layernorm, 2, C, 1e-5}, dtypes, true, true);
    }
    TEST_CASE("the gradient's formulas are finite differences") {
        for (NormKind kind : kinds)
            for (int64_t C : {3, 17}) check_formulas({kind, 2, C, 1e-5});
    }
    TEST_CASE("backward is the formulas in f64") {
        for (const Device& device : test_devices())
            for (NormKind kind : kinds)
                for (Dtypes dtypes : all_dtypes)
                    for (int64_t N : row_counts)
                        for (int64_t C : widths) {
                            // One element or two are ±1 after the norm: with a small eps their gradient is all rounding.
                            const double eps = C <= 2 ? 1 : 1e-5;
                            check_backward(device, {kind, N, C, eps}, dtypes, false, true);
                            check_backward(device, {kind, N, C, eps}, dtypes, true, C % 2 == 1);
                        }
    }
    TEST_CASE("backward of wide rows and over many blocks of rows") {
        for (const Device& device : test_devices()) {
            for (Dtypes dtypes : all_dtypes)
                for (int64_t C : wide) check_backward(device, {NormKind::layernorm, 3, C, 1e-5}, dtypes, true, true);
            for (int64_t N : {600, 5000}) check_backward(device, {NormKind::layernorm, N, 33, 1e-5}, all_dtypes[0], true, true);
        }
    }
    TEST_CASE("rows whose mean is large beside their deviations") {
        for (const Device& device : test_devices()) {
            check_far_means(device);
            check_far_rows(device, 40000, 1000);
            check_far_rows(device, 1e6, 20000);
        }
    }
    TEST_CASE("gradients of constant rows and of zeros are finite") {
        for (const Device& device : test_devices()) check_degenerate_gradients(device);
    }
    TEST_CASE("same bits for any number of threads and any schedule") {
        for (const Device& device : test_devices())
            for (NormKind kind : kinds)
                for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
                    const NormShape shape{kind, in_harness(device) ? 37 : 301, 1000, 1e-5};
                    check_repeatable(device, [&] { return forward_and_backward(device, shape, dtype); });
                }
    }
    TEST_CASE("no rows, and shapes that do not fit") {
        for (const Device& device : test_devices()) {
            CHECK_NOTHROW(forward_and_backward(device, {NormKind::layernorm, 0, 48, 1e-5}, Dtype::f32));
            const Owned x = random_tensor(Dtype::f32, {2, 4}, 1), weight(Dtype::f32, {5});
            CHECK_THROWS_AS(run_forward(device, {NormKind::layernorm, 2, 4, 1e-5}, x, {}, weight, {}), Error);
        }
    }
}

}  // namespace
