#include "pointwise_device.h"

using namespace clover;
using namespace clover::test;

namespace {

/// An arena of n elements and its optimizer's state.
struct Arena {
    Owned master, copy, m, v, grad, grad_scale;
    // Not inlined: with a known n, GCC 12 takes the shapes for uninitialised.
    [[gnu::noinline]] explicit Arena(int64_t n)
        : master(random_tensor(Dtype::f32, {n}, 1, 0.02)), copy(Dtype::bf16, {n}), m(random_tensor(Dtype::f32, {n}, 2, 0.1)),
          v(Dtype::f32, {n}), grad(random_tensor(Dtype::f32, {n}, 3)), grad_scale(Dtype::f32, {1}) {
        for (int64_t i = 0; i < n; i++) v.set(i, 0.01 * std::abs(m.at(i)));
        grad_scale.set(0, 0.25);
    }
    Adamw call(const std::vector<AdamwSegment>& segments, int64_t t) const {
        return {.master = master, .copy = copy, .m = m, .v = v, .grad = grad, .grad_scale = grad_scale,
                .segments = Tensor(const_cast<AdamwSegment*>(segments.data()), Dtype::i32, {int64_t(segments.size()), 6}), .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .t = t};
    }
};

struct Element {
    double w, m, v;
};

/// The header's formulas in f64; the coefficients are those that f32 holds.
Element plain_update(Element e, double grad, double decay, const Adamw& a) {
    const double g = grad * 0.25, beta1 = a.beta1, beta2 = a.beta2;
    e.m = beta1 * e.m + (1 - beta1) * g;
    e.v = beta2 * e.v + (1 - beta2) * g * g;
    const double m_hat = e.m / (1 - std::pow(beta1, double(a.t))), v_hat = e.v / (1 - std::pow(beta2, double(a.t)));
    e.w -= double(a.lr) * (m_hat / (std::sqrt(v_hat) + double(a.eps)) + decay * e.w);
    return e;
}

void check_against_f64(const AdamwOps& ops, int64_t n, const std::vector<AdamwSegment>& segments, int64_t t, bool with_copy) {
    CAPTURE(n); CAPTURE(t); CAPTURE(with_copy);
    const Arena arena(n);
    Adamw call = arena.call(segments, t);
    if (!with_copy) call.copy = {};
    const std::vector<double> before = arena.master.values();
    std::vector<double> change(before.size()), m = arena.m.values(), v = arena.v.values(), ours = before;
    std::vector<bool> covered(before.size());
    for (const AdamwSegment& s : segments)
        for (int64_t i = s.first; i < s.first + s.count; i++) {
            const size_t at = size_t(i);
            const Element e = plain_update({before[at], m[at], v[at]}, arena.grad.at(i), s.weight_decay, call);
            covered[at] = true;
            change[at] = e.w - before[at], m[at] = e.m, v[at] = e.v;
        }
    TestContext ctx(bare_device(), 64);
    ops.update(ctx, call);

    int64_t wrong_copies = 0, touched = 0;
    for (int64_t i = 0; i < n; i++) {
        ours[size_t(i)] = arena.master.at(i) - before[size_t(i)];
        touched += !covered[size_t(i)] && (ours[size_t(i)] != 0 || arena.copy.at(i) != 0);
        const double want = with_copy && covered[size_t(i)] ? stored(arena.master.at(i), Dtype::bf16) : 0;
        wrong_copies += arena.copy.at(i) != want;
    }
    CHECK(normalised_error(ours, change) <= 1e-5);
    CHECK(normalised_error(arena.m.values(), m) <= 1e-6);
    CHECK(normalised_error(arena.v.values(), v) <= 1e-6);
    CHECK(touched == 0);
    CHECK(wrong_copies == 0);
}

/// Segments of lengths 0 to 400 with gaps between them.
std::vector<AdamwSegment> scattered(int64_t n) {
    std::vector<AdamwSegment> segments;
    int64_t first = 3;
    for (uint32_t k = 0;; k++) {
        const int64_t count = random_bits(1, Stream::sampling, k, 0, 0)[0] % 401;
        if (first + count > n) return segments;
        segments.push_back({first, count, k % 2 ? 0.1f : 0.0f});
        first += count + k % 3;
    }
}

std::vector<Owned> three_updates(const AdamwOps& ops, int64_t n, const std::vector<AdamwSegment>& segments) {
    Arena arena(n);
    TestContext ctx(bare_device(), 64);
    for (int64_t t = 1; t <= 3; t++) ops.update(ctx, arena.call(segments, t));
    return list(arena.master, arena.copy, arena.m, arena.v);
}

/// An arena of one number, 1, after many updates by the same gradient.
Arena updated(const AdamwOps& ops, double gradient, float decay, float lr, int64_t steps) {
    Arena one(1);
    one.master.set(0, 1), one.m.set(0, 0), one.v.set(0, 0), one.grad.set(0, gradient), one.grad_scale.set(0, 1);
    const std::vector<AdamwSegment> all = {{0, 1, decay}};
    TestContext ctx(bare_device(), 64);
    for (int64_t t = 1; t <= steps; t++) {
        Adamw call = one.call(all, t);
        call.lr = lr;
        ops.update(ctx, call);
    }
    return one;
}

TEST_SUITE("adamw") {
    TEST_CASE("one segment is the formulas in f64") {
        for (int64_t n : {1, 2, 15, 16, 17, 31, 33, 1000, 16384, 16385, 100003})
            for (int64_t t : {1, 2, 1000})
                for (bool with_copy : {true, false}) check_against_f64(adamw_cpu, n, {{0, n, 0.1f}}, t, with_copy);
    }
    TEST_CASE("what lies between the segments stays") {
        check_against_f64(adamw_cpu, 100, {{7, 1, 0}, {20, 0, 1}, {21, 17, 0.1f}, {60, 39, 0.3f}}, 3, true);
        check_against_f64(adamw_cpu, 50, {}, 1, true);
        for (int64_t n : {5000, 200000}) check_against_f64(adamw_cpu, n, scattered(n), 5, true);
        // Cuts between threads fall into a long segment, between segments and at block ends.
        check_against_f64(adamw_cpu, 200000, {{5, 16384, 0.1f}, {16389, 49152, 0}, {70000, 100000, 0.1f}, {170000, 1, 0}, {170001, 29999, 0.2f}}, 5, true);
    }
    TEST_CASE("a thousand small updates move an f32 master and its bf16 copy") {
        const Arena s = updated(adamw_cpu, 1, 0, 0.001f, 1000);
        // 9e-6 is what a thousand subtractions of 0.001 in f32 leave of 1; the roundings of m and v are to be added.
        CHECK(std::abs(s.master.at(0)) <= 2e-5);
        CHECK(s.copy.at(0) == stored(s.master.at(0), Dtype::bf16));
        // The same numbers without a master never move.
        bf16 alone = to_bf16(1);
        for (int t = 0; t < 1000; t++) alone = to_bf16(to_float(alone) - 0.001f);
        CHECK(to_float(alone) == 1);
    }
    TEST_CASE("weight decay acts on the master at small rates") {
        const Arena s = updated(adamw_cpu, 0, 0.1f, 6e-5f, 10000);
        CHECK(std::abs(s.master.at(0) - 0.94176) <= 1e-4);
        CHECK(s.copy.at(0) == stored(s.master.at(0), Dtype::bf16));
        // In bf16 alone a decay of 6e-6 is nothing.
        CHECK(to_float(to_bf16(1 - 6e-6f)) == 1);
    }
    TEST_CASE("segments outside the arena are refused") {
        for (AdamwSegment s : {AdamwSegment{0, 11, 0}, AdamwSegment{-1, 2, 0}, AdamwSegment{10, 1, 0}, AdamwSegment{3, -1, 0}})
            CHECK_THROWS_AS(three_updates(adamw_cpu, 10, {s}), Error);
    }
    TEST_CASE("same bits for any number of threads") {
        for (const std::vector<AdamwSegment>& segments : {scattered(300000), std::vector<AdamwSegment>{{1, 299999, 0.1f}}})
            check_thread_independence([&] { return three_updates(adamw_cpu, 300000, segments); });
    }
}

}  // namespace
