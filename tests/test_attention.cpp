// Attention against the dense f64 reference (attention_reference.h): every position scheme, shapes on both sides of the tiles' edges
// (CPU: strips of 8 and 32 queries, tiles of 64 queries, 256 and 512 keys; CUDA: tiles of 16 and 64). bf16 is also checked on a CPU
// without AMX and on CUDA without tensor cores, which take other ways.
#include <omp.h>

#include "attention_reference.h"

using namespace clover;
using namespace clover::test;

namespace {

constexpr AttentionPosition kinds[] = {AttentionPosition::none, AttentionPosition::alibi, AttentionPosition::relative};

/// f32 and f16 take the same way on both CPU devices, and on both CUDA devices.
Devices devices_for(Dtype dtype) {
    return dtype != Dtype::bf16 ? test_devices() : Devices(attention_devices().begin(), attention_devices().end());
}

struct Shape {
    int64_t B, T, H, D;
};

void check_f32(const Device& device, const Shape& s, AttentionPosition kind, Dtype bias = Dtype::f32) {
    INFO(on(device), ", B ", s.B, ", T ", s.T, ", H ", s.H, ", D ", s.D, ", position ", int(kind));
    const AttentionProblem p(s.B, s.T, s.H, s.D, kind, Dtype::f32, bias);
    const AttentionReference want = DenseAttention(p).forward_and_backward();
    const AttentionResult got(device, p);
    CHECK(normalised_error(got.out.values(), want.out) < 1e-5);
    CHECK(normalised_error(got.lse.values(), want.lse) < 1e-5);
    CHECK(normalised_error(got.dqkv.values(), want.dqkv) < 1e-5);
    if (kind != AttentionPosition::relative) return;
    CHECK(normalised_error(got.dr.values(), want.dr) < 1e-5);
    CHECK(normalised_error(got.du.values(), want.du) < 1e-5);
    CHECK(normalised_error(got.dv.values(), want.dv) < 1e-5);
}

/// The flash-attention rule: at most `factor` times the error of the plain low-precision implementation. Where that happens to be
/// almost exact (one key), the dtype's own rounding is the floor. A rule for many values: of a few, either error may be small by chance.
void check_low(const Device& device, const Shape& s, AttentionPosition kind, Dtype dtype = Dtype::bf16, Dtype bias = Dtype::f32) {
    INFO(on(device), ", B ", s.B, ", T ", s.T, ", H ", s.H, ", D ", s.D, ", position ", int(kind), ", ", name_of(dtype));
    const AttentionProblem p(s.B, s.T, s.H, s.D, kind, dtype, bias);
    const AttentionReference exact = DenseAttention(p).forward_and_backward(), plain = DenseAttention(p, dtype).forward_and_backward();
    const AttentionResult got(device, p);
    const auto check = [&](const Owned& ours, const std::vector<double>& low, const std::vector<double>& right, double factor) {
        CHECK(normalised_error(ours.values(), right) <= std::max(factor * normalised_error(low, right), rounding_of(dtype) / 2));
    };
    check(got.out, plain.out, exact.out, 2);
    check(got.dqkv, plain.dqkv, exact.dqkv, 3);
    if (kind != AttentionPosition::relative) return;
    check(got.dr, plain.dr, exact.dr, 3);
    check(got.du, plain.du, exact.du, 3);
    check(got.dv, plain.dv, exact.dv, 3);
}

/// With another last half of the sequence, what stands before is the same to the bit.
void check_causality(const Device& device, AttentionPosition kind, Dtype dtype, const Shape& s, int64_t changed) {
    INFO(on(device), ", position ", int(kind), ", D ", s.D, ", changed ", changed);
    const AttentionProblem p(s.B, s.T, s.H, s.D, kind, dtype);
    AttentionProblem q(s.B, s.T, s.H, s.D, kind, dtype);
    const int64_t T = s.T;
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t c = 0; c < q.qkv.t.columns(); c++) q.qkv.set((b * T + changed) * q.qkv.t.columns() + c, c % 2 ? 40 : -30);
    const AttentionResult one(device, p, false), other(device, q, false);
    for (int64_t b = 0; b < s.B; b++) {
        CHECK(same_bits(one.out.t.row_range(b * T, changed), other.out.t.row_range(b * T, changed)));
        CHECK_FALSE(same_bits(one.out.t.row_range(b * T + changed, 1), other.out.t.row_range(b * T + changed, 1)));
    }
}

bool all_finite(const Owned& o) {
    for (double x : o.values())
        if (!std::isfinite(x)) return false;
    return true;
}

/// Scores of ±1e4: no NaN, and one key takes all. Probabilities that are far from 0 and 1 would ask for absolute errors of 1e-5 in a
/// score of 1e4, which f32 does not hold; so the results are compared where the greatest score stands apart.
void check_large_scores(const Device& device, AttentionPosition kind, Dtype dtype, int64_t D) {
    INFO(on(device)); CAPTURE(int(kind)); CAPTURE(D);
    const AttentionProblem p(1, 70, 2, D, kind, dtype, Dtype::f32, 100);
    const AttentionResult got(device, p);
    for (const Owned* o : {&got.out, &got.lse, &got.dqkv, &got.du, &got.dv}) CHECK(all_finite(*o));
    const AttentionReference want = DenseAttention(p).forward();
    double greatest = 0;
    for (double x : want.lse) greatest = std::max(greatest, std::abs(x));
    CHECK(greatest > 1e4);
    CHECK(normalised_error(got.lse.values(), want.lse) < 1e-5);
    CHECK(normalised_error(got.out.values(), want.out) < (dtype == Dtype::f32 ? 1e-3 : 1e-2));
}

void check_accumulation(const Device& device, Dtype dtype) {
    INFO(on(device)); CAPTURE(int(dtype));
    const AttentionProblem p(2, 20, 3, 32, AttentionPosition::relative, dtype);
    const AttentionResult fresh(device, p), added(device, p, true, 5);
    for (int64_t i = 0; i < 3 * 32; i++) {
        CHECK(added.du.at(i) == float(float(fresh.du.at(i)) + 5.0f));
        CHECK(added.dv.at(i) == float(float(fresh.dv.at(i)) + 5.0f));
    }
    CHECK(same_bits(fresh.dr, added.dr));
}

bool same_result(const AttentionResult& a, const AttentionResult& b) {
    return same_bits(a.out, b.out) && same_bits(a.lse, b.lse) && same_bits(a.dqkv, b.dqkv) && same_bits(a.dr, b.dr) &&
           same_bits(a.du, b.du) && same_bits(a.dv, b.dv);
}

void check_contract(const Device& device) {
    INFO(on(device));
    const AttentionProblem p(1, 8, 2, 4, AttentionPosition::relative);
    Owned out(Dtype::f32, {8, 8}), lse(Dtype::f32, {1, 2, 8});
    const AttentionForward good{out, lse, p.qkv, p.position()};
    TestContext ctx(device, device.attention.forward_workspace_bytes(good));
    device.attention.forward(ctx, good);
    AttentionForward bad = good;
    bad.qkv = p.qkv.t.row_range(0, 7);
    CHECK_THROWS_AS(device.attention.forward(ctx, bad), Error);
    bad = good;
    bad.position.r = p.r.t.row_range(0, 7);
    CHECK_THROWS_AS(device.attention.forward(ctx, bad), Error);
    bad = good;
    bad.out = Tensor(out.t.data, Dtype::bf16, {8, 8});
    CHECK_THROWS_AS(device.attention.forward(ctx, bad), Error);
    bad = good;
    bad.position.content_bias = Tensor();
    CHECK_THROWS_AS(device.attention.forward(ctx, bad), Error);
    bad = good;
    bad.position.kind = AttentionPosition::alibi;
    CHECK_THROWS_AS(device.attention.forward(ctx, bad), Error);
    TestContext none(device);
    if (device.attention.forward_workspace_bytes(good) > 0) CHECK_THROWS_AS(device.attention.forward(none, good), Error);
}

/// Transformer-XL's rel_shift (appendix B): a zero column on the left, viewed as (columns + 1, rows), without its first row.
std::vector<double> rel_shift(const std::vector<double>& x, int64_t rows, int64_t columns) {
    std::vector<double> padded;
    for (int64_t i = 0; i < rows; i++) {
        padded.push_back(0);
        for (int64_t p = 0; p < columns; p++) padded.push_back(x[size_t(i * columns + p)]);
    }
    return std::vector<double>(padded.begin() + rows, padded.end());
}

/// One head whose scores come from pad-and-reshape: (q + v)·r with r in descending order of distance, shifted.
std::vector<double> shifted_attention(const DenseAttention& a) {
    const int64_t T = a.T, D = a.D;
    std::vector<double> raw(size_t(T * T)), out(size_t(T * D));
    for (int64_t i = 0; i < T; i++)
        for (int64_t p = 0; p < T; p++)
            for (int64_t c = 0; c < D; c++)
                raw[size_t(i * T + p)] += (a.qkv[a.at(0, i, 0, 0, c)] + a.v[size_t(c)]) * a.r[a.r_at(T - 1 - p, 0, c)];
    const std::vector<double> shifted = rel_shift(raw, T, T);
    for (int64_t i = 0; i < T; i++) {
        double sum = 0;
        for (int64_t j = 0; j <= i; j++) {
            double s = shifted[size_t(i * T + j)];
            for (int64_t c = 0; c < D; c++) s += (a.qkv[a.at(0, i, 0, 0, c)] + a.u[size_t(c)]) * a.qkv[a.at(0, j, 0, 1, c)];
            const double e = std::exp(s / std::sqrt(double(D)));
            sum += e;
            for (int64_t c = 0; c < D; c++) out[size_t(i * D + c)] += e * a.qkv[a.at(0, j, 0, 2, c)];
        }
        for (int64_t c = 0; c < D; c++) out[size_t(i * D + c)] /= sum;
    }
    return out;
}

/// Σ out · dout, whose gradients are the reference's.
double loss(const DenseAttention& a) {
    const AttentionReference f = a.forward();
    double sum = 0;
    for (size_t i = 0; i < f.out.size(); i++) sum += f.out[i] * a.dout[i];
    return sum;
}

void check_finite_differences(DenseAttention& a, std::vector<double>& parameter, const std::vector<double>& gradient) {
    const double h = 1e-5;
    for (size_t i = 0; i < gradient.size(); i += 1 + gradient.size() / 40) {
        const double x = parameter[i];
        parameter[i] = x + h;
        const double above = loss(a);
        parameter[i] = x - h;
        const double below = loss(a);
        parameter[i] = x;
        CHECK(std::abs((above - below) / (2 * h) - gradient[i]) < 1e-7);
    }
}

}  // namespace

TEST_SUITE_BEGIN("attention");

TEST_CASE("attention: the reference's gradients are those of finite differences") {
    for (AttentionPosition kind : kinds) {
        CAPTURE(int(kind));
        const AttentionProblem p(2, 9, 2, 5, kind);
        DenseAttention a(p);
        const AttentionReference g = a.forward_and_backward();
        check_finite_differences(a, a.qkv, g.dqkv);
        if (kind != AttentionPosition::relative) continue;
        check_finite_differences(a, a.r, g.dr);
        check_finite_differences(a, a.u, g.du);
        check_finite_differences(a, a.v, g.dv);
    }
}

TEST_CASE("attention: rel_shift of case A14, and attention built on it") {
    std::vector<double> raw;
    for (int i = 0; i < 3; i++)
        for (int p = 0; p < 5; p++) raw.push_back(10 * i + p);
    const std::vector<double> s = rel_shift(raw, 3, 5);
    const std::vector<std::vector<double>> want = {{2, 3, 4}, {11, 12, 13, 14}, {20, 21, 22, 23, 24}};
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < want[i].size(); j++) CHECK(s[i * 5 + j] == want[i][j]);
    for (int64_t T : {1, 5, 40}) {
        const AttentionProblem p(1, T, 1, 8, AttentionPosition::relative);
        CHECK(normalised_error(AttentionResult(find_device("cpu"), p, false).out.values(), shifted_attention(DenseAttention(p))) < 1e-5);
    }
}

TEST_CASE("attention f32: forward and all gradients, lengths around the tiles") {
    for (const Device& device : test_devices())
        for (AttentionPosition kind : kinds)
            for (int64_t T : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 131, 255, 256, 257, 323})
                if (!in_harness(device) || T < 200) check_f32(device, {1, T, 1, 16}, kind);
}

TEST_CASE("attention f32: several tiles of keys") {
    for (const Device& device : test_devices())
        for (AttentionPosition kind : kinds)
            for (const Shape& s : {Shape{1, 512, 1, 8}, Shape{1, 513, 1, 8}, Shape{1, 1027, 1, 4}})
                if (!in_harness(device)) check_f32(device, s, kind);
}

TEST_CASE("attention f32: head sizes") {
    for (const Device& device : test_devices())
        for (AttentionPosition kind : kinds)
            for (int64_t D : {1, 8, 15, 16, 17, 20, 32, 33, 64, 80, 96, 128, 256}) check_f32(device, {1, 37, 2, D}, kind);
}

TEST_CASE("attention f32: batches and heads") {
    for (const Device& device : test_devices())
        for (AttentionPosition kind : kinds)
            for (const Shape& s : {Shape{2, 20, 1, 16}, Shape{3, 67, 3, 20}, Shape{2, 130, 3, 64}, Shape{3, 1, 3, 8}})
                if (!in_harness(device) || s.T < 100) check_f32(device, s, kind);
}

TEST_CASE("attention bf16 and f16: errors of at most twice, backward three times, the plain implementation's") {
    for (Dtype dtype : {Dtype::bf16, Dtype::f16})
        for (const Device& device : devices_for(dtype))
            for (AttentionPosition kind : kinds)
                for (const Shape& s : {Shape{1, 1, 1, 8}, Shape{9, 2, 3, 64}, Shape{2, 33, 2, 20}, Shape{1, 65, 3, 80}, Shape{1, 131, 1, 128},
                                       Shape{2, 130, 2, 64}, Shape{1, 300, 1, 96}, Shape{3, 40, 3, 8}, Shape{1, 530, 1, 16}})
                    if (!in_harness(device) || s.T < 200) check_low(device, s, kind, dtype);
}

TEST_CASE("attention bf16 and f16: lengths around the tiles, odd head sizes") {
    for (Dtype dtype : {Dtype::bf16, Dtype::f16})
        for (const Device& device : devices_for(dtype))
            for (AttentionPosition kind : kinds)
                for (const Shape& s : {Shape{1, 31, 2, 48}, Shape{1, 32, 2, 48}, Shape{1, 33, 2, 48}, Shape{1, 63, 2, 33}, Shape{1, 64, 2, 32},
                                       Shape{1, 95, 1, 40}, Shape{1, 96, 1, 40}, Shape{1, 97, 1, 40}, Shape{1, 255, 1, 17},
                                       Shape{1, 256, 1, 15}, Shape{1, 257, 1, 24}, Shape{1, 20, 1, 256}})
                    if (!in_harness(device) || s.T < 100) check_low(device, s, kind, dtype);
}

TEST_CASE("attention bf16 by tensor cores: lengths around the tiles of each head size") {
    for (const Device& device : attention_devices())
        if (device.name == std::string("cuda"))
            for (AttentionPosition kind : kinds)
                for (int64_t D : {32, 64, 80, 96, 128})
                    for (int64_t T : {1, 15, 16, 17, 63, 64, 65, 128, 130, 200})
                        check_low(device, {T < 64 ? 2 : 1, T, T < 64 ? 3 : 1, D}, kind);  // short ones: more of them, for many values
}

TEST_CASE("attention bf16 by tensor cores: whichever way they add") {
    for (const Device& device : attention_devices())
        if (device.name == std::string("cuda"))
            for_mma_models(device, [&] {
                for (AttentionPosition kind : kinds)
                    for (int64_t D : {32, 64, 80, 96, 128}) check_low(device, {1, D == 64 ? 193 : 77, 1, D}, kind);
            });
}

TEST_CASE("attention: u and v in bf16 and f16") {
    for (Dtype dtype : {Dtype::bf16, Dtype::f16}) {
        for (const Device& device : test_devices()) check_f32(device, {2, 40, 3, 20}, AttentionPosition::relative, dtype);
        for (const Device& device : devices_for(dtype))
            for (int64_t D : {40, 64}) check_low(device, {2, 40, 3, D}, AttentionPosition::relative, dtype, dtype);
    }
}

TEST_CASE("attention: a token changes nothing before it") {
    for (AttentionPosition kind : kinds)
        for (Dtype dtype : float_dtypes)
            for (const Device& device : devices_for(dtype))
                for (int64_t D : {20, 32})
                    for (int64_t changed : {1, 7, 8, 40, 63, 64, 66}) check_causality(device, kind, dtype, {2, 67, 2, D}, changed);
}

TEST_CASE("attention: scores of 1e4") {
    for (AttentionPosition kind : kinds)
        for (Dtype dtype : float_dtypes)
            for (const Device& device : devices_for(dtype))
                for (int64_t D : {16, 32}) check_large_scores(device, kind, dtype, D);
}

TEST_CASE("attention: the gradients of u and v are added, that of r is written") {
    for (Dtype dtype : float_dtypes)
        for (const Device& device : devices_for(dtype)) check_accumulation(device, dtype);
}

TEST_CASE("attention: what breaks the contract is refused") {
    for (const Device& device : attention_devices()) check_contract(device);
}

TEST_CASE("attention cpu: the same bits for any number of threads") {
    const Device& device = find_device("cpu");
    const int threads = omp_get_max_threads();
    for (AttentionPosition kind : kinds)
        for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
            const AttentionProblem p(3, 130, 3, 20, kind, dtype);
            omp_set_num_threads(1);
            const AttentionResult one(device, p);
            for (int n : {2, 3, 7}) {
                omp_set_num_threads(n);
                CHECK(same_result(one, AttentionResult(device, p)));
            }
        }
    omp_set_num_threads(threads);
}

TEST_CASE("attention cuda: the same bits for any schedule") {
    for (Dtype dtype : {Dtype::f32, Dtype::bf16})
        for (const Device& device : devices_for(dtype))
            for (AttentionPosition kind : kinds)
                for (int64_t D : {20, 64}) {
                    if (!is_cuda(device)) continue;
                    INFO(on(device), ", position ", int(kind), ", D ", D, ", ", name_of(dtype));
                    const AttentionProblem p(1, D == 64 ? 70 : 20, 2, D, kind, dtype);
                    const AttentionResult one(device, p);
                    for (int seed : schedules(device)) {
                        CAPTURE(seed);
                        const LaunchOrder order(device, seed);
                        CHECK(same_result(one, AttentionResult(device, p)));
                    }
                }
}

TEST_SUITE_END();
