#include "optimizer_golden.h"

using namespace clover;
using namespace clover::test;

namespace {

/// How the numbers are stored.
struct Stored {
    Dtype master = Dtype::f32, moments = Dtype::f32;
    bool copy = true;
};

/// An arena of n elements and its optimizer's state.
struct Arena {
    Owned master, copy, m, v, grad, grad_scale, segments, changes;
    bool has_copy;
    // Not inlined: with a known n, GCC 12 takes the shapes for uninitialised.
    [[gnu::noinline]] Arena(int64_t n, const std::vector<Segment>& segments_, Stored stored = {})
        : master(random_tensor(stored.master, {n}, 1, 0.02)), copy(Dtype::bf16, {n}), m(random_tensor(stored.moments, {n}, 2, 0.1)),
          v(stored.moments, {n}), grad(random_tensor(Dtype::f32, {n}, 3)), grad_scale(Dtype::f32, {1}),
          segments(Dtype::i32, {int64_t(segments_.size()), segment_words}), changes(Dtype::f32, {int64_t(segments_.size()), 3}), has_copy(stored.copy) {
        v.fill([moment = m.values()](int64_t i) { return 0.01 * std::abs(moment[size_t(i)]); });
        grad_scale.set(0, 0.25);
        if (!segments_.empty()) std::memcpy(segments.t.data, segments_.data(), segments.t.bytes());
    }
    Adamw call(int64_t t) const {
        const Weights weights{.master = master, .copy = has_copy ? copy.t : Tensor{}, .segments = segments};
        return {.weights = weights, .m = m, .v = v, .grad = grad, .grad_scale = grad_scale, .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .t = t};
    }
};

void run(Context& ctx, const Adamw& a) {
    ctx.device.adamw.update(ctx, a);
    synchronize();  // a fault is told here
}

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

/// Of f32 the error, of bf16 the number of elements that are not a neighbour of the exact value.
void check_stored(const std::vector<double>& ours, const std::vector<double>& exact, Dtype dtype, double tolerance) {
    if (dtype == Dtype::f32) {
        CHECK(normalised_error(ours, exact) <= tolerance);
        return;
    }
    int64_t far = 0;
    for (size_t i = 0; i < ours.size(); i++) far += std::abs(ours[i] - exact[i]) > 0.5001 * 0x1p-7 * std::abs(exact[i]) + 1e-8;
    CHECK(far == 0);
}

void check_against_f64(const Device& device, int64_t n, const std::vector<Segment>& segments, int64_t t, Stored stored_as) {
    INFO(on(device)); CAPTURE(n); CAPTURE(t); CAPTURE(stored_as.copy); CAPTURE(int(stored_as.master)); CAPTURE(int(stored_as.moments));
    const Arena arena(n, segments, stored_as);
    const Adamw call = arena.call(t);
    const std::vector<double> before = arena.master.values(), grad = arena.grad.values();
    std::vector<double> exact = before, m = arena.m.values(), v = arena.v.values(), change(before.size()), ours = before;
    std::vector<bool> covered(before.size());
    for (const Segment& s : segments)
        for (int64_t i = s.first; i < s.first + s.count; i++) {
            const size_t at = size_t(i);
            const Element e = plain_update({before[at], m[at], v[at]}, grad[at], s.weight_decay, call);
            covered[at] = true;
            exact[at] = e.w, change[at] = e.w - before[at], m[at] = e.m, v[at] = e.v;
        }
    TestContext ctx(device);
    run(ctx, call);

    const std::vector<double> master = arena.master.values(), copy = arena.copy.values();
    int64_t wrong_copies = 0, touched = 0;
    for (size_t i = 0; i < size_t(n); i++) {
        ours[i] = master[i] - before[i];
        touched += !covered[i] && (ours[i] != 0 || copy[i] != 0);
        wrong_copies += copy[i] != (stored_as.copy && covered[i] ? stored(master[i], Dtype::bf16) : 0);
    }
    if (stored_as.master == Dtype::f32) CHECK(normalised_error(ours, change) <= 1e-5);
    else check_stored(master, exact, Dtype::bf16, 0);
    check_stored(arena.m.values(), m, stored_as.moments, 1e-6);
    check_stored(arena.v.values(), v, stored_as.moments, 1e-6);
    CHECK(touched == 0);
    CHECK(wrong_copies == 0);
}

constexpr Stored with_copy{}, without_copy{.copy = false}, low_master{.master = Dtype::bf16, .copy = false}, low_moments{.moments = Dtype::bf16};

/// Segments of lengths 0 to 400 with gaps between them.
std::vector<Segment> scattered(int64_t n) {
    std::vector<Segment> segments;
    int64_t first = 3;
    for (uint32_t k = 0;; k++) {
        const int64_t count = random_bits(1, Stream::sampling, k, 0, 0)[0] % 401;
        if (first + count > n) return segments;
        segments.push_back({first, count, k % 2 ? 0.1f : 0.0f});
        first += count + k % 3;
    }
}

std::vector<Owned> three_updates(const Device& device, int64_t n, const std::vector<Segment>& segments) {
    Arena arena(n, segments);
    TestContext ctx(device);
    for (int64_t t = 1; t <= 3; t++) run(ctx, arena.call(t));
    return list(arena.master, arena.copy, arena.m, arena.v);
}

/// An arena of one number, 1, after many updates by the same gradient.
Arena updated(const Device& device, double gradient, float decay, float lr, int64_t steps) {
    Arena one(1, {{0, 1, decay}});
    one.master.set(0, 1), one.m.set(0, 0), one.v.set(0, 0), one.grad.set(0, gradient), one.grad_scale.set(0, 1);
    TestContext ctx(device);
    for (int64_t t = 1; t <= steps; t++) {
        Adamw call = one.call(t);
        call.lr = lr;
        run(ctx, call);
    }
    return one;
}

TEST_SUITE("adamw") {
    TEST_CASE("one segment is the formulas in f64") {
        for (const Device& device : test_devices())
            for (int64_t n : {1, 2, 15, 16, 17, 31, 33, 1000, 16384, 16385, 100003})
                for (int64_t t : {1, 2, 1000})
                    for (const Stored& stored : {with_copy, without_copy, low_master, low_moments}) check_against_f64(device, n, {{0, n, 0.1f}}, t, stored);
    }
    TEST_CASE("what lies between the segments stays") {
        for (const Device& device : test_devices()) {
            check_against_f64(device, 100, {{7, 1, 0}, {20, 0, 1}, {21, 17, 0.1f}, {60, 39, 0.3f}}, 3, with_copy);
            check_against_f64(device, 50, {}, 1, with_copy);
            for (int64_t n : {5000, 200000}) check_against_f64(device, n, scattered(n), 5, with_copy), check_against_f64(device, n, scattered(n), 5, low_master);
            // Cuts between threads fall into a long segment, between segments and at block ends.
            check_against_f64(device, 200000, {{5, 16384, 0.1f}, {16389, 49152, 0}, {70000, 100000, 0.1f}, {170000, 1, 0}, {170001, 29999, 0.2f}}, 5, with_copy);
        }
    }
    TEST_CASE("PyTorch's AdamW: 25 steps, two groups of weight decay") {
        const OptimizerGolden golden;
        for (const Device& device : test_devices()) {
            INFO(on(device));
            std::vector<Segment> segments;
            for (int k = 0; k < 3; k++) segments.push_back({OptimizerGolden::first[k], OptimizerGolden::count[k], k < 2 ? 0.1f : 0.0f});
            Arena arena(OptimizerGolden::elements, segments);
            fill(arena.master, golden.arena("param"));
            for (Owned* zero : {&arena.m, &arena.v}) zero->fill([](int64_t) { return 0.0; });
            arena.grad_scale.set(0, 1);
            TestContext ctx(device);
            for (int64_t t = 1; t <= OptimizerGolden::steps; t++) {
                fill(arena.grad, golden.arena("grad", t - 1));
                run(ctx, arena.call(t));
            }
            golden.check(arena.master.values(), "adamw");
        }
    }
    TEST_CASE("a scale that is not a number leaves everything as it is") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            Arena arena(1000, {{0, 700, 0.1f}, {750, 250, 0}});
            arena.grad_scale.set(0, NAN);
            const Owned master = copy_of(arena.master), copy = copy_of(arena.copy), m = copy_of(arena.m), v = copy_of(arena.v);
            TestContext ctx(device);
            run(ctx, arena.call(3));
            CHECK(same_bits(arena.master, master));
            CHECK(same_bits(arena.copy, copy));
            CHECK(same_bits(arena.m, m));
            CHECK(same_bits(arena.v, v));
        }
    }
    TEST_CASE("a thousand small updates move an f32 master and its bf16 copy") {
        for (const Device& device : test_devices()) {
            const Arena s = updated(device, 1, 0, 0.001f, 1000);
            // 9e-6 is what a thousand subtractions of 0.001 in f32 leave of 1; the roundings of m and v are to be added.
            CHECK(std::abs(s.master.at(0)) <= 2e-5);
            CHECK(s.copy.at(0) == stored(s.master.at(0), Dtype::bf16));
        }
        // The same numbers without a master never move.
        bf16 alone = to_bf16(1);
        for (int t = 0; t < 1000; t++) alone = to_bf16(to_float(alone) - 0.001f);
        CHECK(to_float(alone) == 1);
    }
    TEST_CASE("weight decay acts on the master at small rates") {
        for (const Device& device : test_devices()) {
            const Arena s = updated(device, 0, 0.1f, 6e-5f, 10000);
            CHECK(std::abs(s.master.at(0) - 0.94176) <= 1e-4);
            CHECK(s.copy.at(0) == stored(s.master.at(0), Dtype::bf16));
        }
        // In bf16 alone a decay of 6e-6 is nothing.
        CHECK(to_float(to_bf16(1 - 6e-6f)) == 1);
    }
    TEST_CASE("segments outside the arena are refused") {
        for (const Device& device : test_devices())
            for (Segment s : {Segment{0, 11, 0}, Segment{-1, 2, 0}, Segment{10, 1, 0}, Segment{3, -1, 0}})
                if (!stops_kernels(device)) CHECK(refusal([&] { three_updates(device, 10, {s}); }) != "");
    }
    TEST_CASE("same bits for any number of threads and any schedule") {
        for (const Device& device : test_devices()) {
            const int64_t n = in_harness(device) ? 30000 : 300000;
            for (const std::vector<Segment>& segments : {scattered(n), std::vector<Segment>{{1, n - 1, 0.1f}}})
                check_repeatable(device, [&] { return three_updates(device, n, segments); });
        }
    }
}

}  // namespace
