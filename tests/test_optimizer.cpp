// How new parameters are stored: random rounding (unbiased; the same after a restart and on every mesh), what a step reports, and how the recipes differ.
#include <cstring>

#include "../optim/recipe.h"
#include "pointwise_device.h"

using namespace clover;
using namespace clover::test;

namespace {

constexpr uint64_t seed = 11;
constexpr uint32_t key = 0x89abcdef;

/// Arenas of n elements; the segments are all of them unless said.
struct Arena {
    Owned master, copy, segments, changes;
    std::vector<Segment> host_segments;
    bool has_copy;
    [[gnu::noinline]] Arena(int64_t n, Dtype dtype, bool with_copy, std::vector<Segment> parts)
        : master(random_tensor(dtype, {n}, 1, 0.02)), copy(Dtype::bf16, {n}), segments(Dtype::i32, {int64_t(parts.size()), segment_words}),
          changes(Dtype::f32, {int64_t(parts.size()), 3}), host_segments(std::move(parts)), has_copy(with_copy) {
        std::memcpy(segments.t.data, host_segments.data(), segments.t.bytes());
    }
    Arena(int64_t n, Dtype dtype, bool with_copy) : Arena(n, dtype, with_copy, {{.first = 0, .count = n, .key = key}}) {}
    Weights weights(Rounding rounding, int64_t step) const {
        return {.master = master, .copy = has_copy ? copy.t : Tensor{}, .segments = segments, .rounding = rounding, .seed = seed, .step = step};
    }
};

void refresh(const Device& device, const Weights& w) {
    TestContext ctx(device, device.optimizer.refresh_workspace_bytes(w));
    device.optimizer.refresh(ctx, w);
    synchronize();
}

/// AdamW with a constant gradient, whose step is lr from the first on (m/√v = 1 but for eps).
struct Walk {
    Arena arena;
    Owned m, v, grad, grad_scale;
    Walk(int64_t n, Dtype master, bool with_copy, double start, double gradient) : Walk(n, master, with_copy, start, gradient, {{.first = 0, .count = n, .key = key}}) {}
    Walk(int64_t n, Dtype master, bool with_copy, double start, double gradient, const std::vector<Segment>& parts)
        : arena(n, master, with_copy, parts), m(Dtype::f32, {n}), v(Dtype::f32, {n}), grad(Dtype::f32, {n}), grad_scale(Dtype::f32, {1}) {
        arena.master.fill([=](int64_t) { return start; });
        grad.fill([=](int64_t) { return gradient; });
        grad_scale.set(0, 1);
    }
    Adamw call(Rounding rounding, int64_t step, float lr) const {
        return {.weights = arena.weights(rounding, step), .m = m, .v = v, .grad = grad, .grad_scale = grad_scale, .lr = lr, .beta1 = 0.9f, .beta2 = 0.95f,
                .eps = 1e-8f, .t = step};
    }
    void steps(const Device& device, Rounding rounding, int64_t first, int64_t last, float lr) {
        TestContext ctx(device, device.adamw.workspace_bytes(call(rounding, 1, lr)));
        for (int64_t t = first; t <= last; t++) device.adamw.update(ctx, call(rounding, t, lr));
    }
};

double mean(const std::vector<double>& x) {
    double sum = 0;
    for (double y : x) sum += y;
    return sum / double(x.size());
}

double deviation(const std::vector<double>& x) {
    const double middle = mean(x);
    double squares = 0;
    for (double y : x) squares += (y - middle) * (y - middle);
    return std::sqrt(squares / double(x.size()));
}

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
float rounded(float x, uint32_t noise) { return to_float(to_bf16_stochastic(x, noise)); }

TEST_SUITE("optimizer") {
    TEST_CASE("random rounding of one number: every noise, both signs") {
        // 1 + 77/65536 of the distance to the next: up for exactly the noises of at least 65536 − 77.
        for (uint32_t sign : {0u, 0x80000000u}) {
            const float x = from_bits(sign | 0x3f80004du);
            int64_t up = 0;
            for (uint32_t noise = 0; noise < 65536; noise++) {
                const float y = rounded(x, noise);
                up += std::bit_cast<uint32_t>(y) == (sign | 0x3f810000u);
                CHECK((std::bit_cast<uint32_t>(y) == (sign | 0x3f810000u) || std::bit_cast<uint32_t>(y) == (sign | 0x3f800000u)));
            }
            CHECK(up == 77);
        }
    }
    TEST_CASE("random rounding: what bf16 holds stays, NaN and infinities stay, finite stays finite") {
        for (uint32_t high = 0; high < 65536; high++) {
            const bf16 x{uint16_t(high)};
            if (std::isnan(to_float(x))) continue;
            for (uint32_t noise : {0u, 1u, 32768u, 65535u})
                if (to_bf16_stochastic(to_float(x), noise).bits != x.bits) FAIL("moved: ", high, " by ", noise);
        }
        for (uint32_t noise : {0u, 65535u}) {
            CHECK(std::isnan(rounded(from_bits(0x7f800001u), noise)));  // a NaN of the lowest payload
            CHECK(std::isnan(rounded(from_bits(0xffffffffu), noise)));
            CHECK(rounded(INFINITY, noise) == INFINITY);
            CHECK(rounded(-INFINITY, noise) == -INFINITY);
            CHECK(rounded(from_bits(0x7f7fffffu), noise) == from_bits(0x7f7f0000u));
            CHECK(rounded(from_bits(0xff7fffffu), noise) == from_bits(0xff7f0000u));
        }
        CHECK(rounded(from_bits(1), 65535) == from_bits(0x10000u));  // the least denormal, up
        CHECK(rounded(from_bits(1), 65534) == 0);
    }
    TEST_CASE("the bits of both devices are the header's, for any length and place") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            for (int64_t n : {1, 3, 16, 63, 64, 65, 1000, 5003}) {
                CAPTURE(n);
                const std::vector<Segment> parts{{.first = 5, .count = n, .key = key, .element = (int64_t{1} << 34) - 40}, {.first = n + 7, .count = n, .key = 3}};
                const Arena arena(2 * n + 9, Dtype::f32, true, parts);
                for (int64_t i : {int64_t{5}, n + 4}) arena.copy.t.as<bf16>()[i] = {};
                if (n >= 65) const_cast<Arena&>(arena).master.set(20, NAN), const_cast<Arena&>(arena).master.set(21, -INFINITY), const_cast<Arena&>(arena).master.set(22, 3.4e38);
                refresh(device, arena.weights(Rounding::stochastic, 9));
                const std::vector<double> master = arena.master.values();
                int64_t wrong = 0;
                for (const Segment& s : parts)
                    for (int64_t i = 0; i < s.count; i++) {
                        const uint32_t noise = random_bits(seed, Stream::rounding, s.key, 9, uint64_t(s.element + i) / 8)[size_t((s.element + i) % 8 / 2)] >> 16 * ((s.element + i) % 2) & 0xffff;
                        wrong += arena.copy.t.as<bf16>()[s.first + i].bits != to_bf16_stochastic(float(master[size_t(s.first + i)]), noise).bits;
                    }
                CHECK(wrong == 0);
            }
        }
    }
    TEST_CASE("a million draws are unbiased, for several distances") {
        const Device& device = find_device("cpu");
        constexpr int64_t n = 1000000;
        for (double distance : {1.0 / 65536, 0.01, 0.25, 0.5, 0.9}) {
            CAPTURE(distance);
            Arena arena(n, Dtype::f32, true);
            const double spacing = 0x1p-7, x = 1 + float(distance) * spacing;
            arena.master.fill([=](int64_t) { return x; });
            refresh(device, arena.weights(Rounding::stochastic, 1));
            const std::vector<double> copy = arena.copy.values();
            // The probability of the distance in 65536ths, within five standard errors.
            const double p = std::floor(distance * 65536) / 65536, standard_error = spacing * std::sqrt(p * (1 - p) / double(n));
            CHECK(std::abs(mean(copy) - (1 + p * spacing)) <= 5 * standard_error);
            CHECK(deviation(copy) == doctest::Approx(spacing * std::sqrt(p * (1 - p))).epsilon(distance < 0.001 ? 0.3 : 0.01));
            // Neighbours do not follow each other.
            double together = 0;
            for (size_t i = 1; i < copy.size(); i++) together += (copy[i] - mean({1 + p * spacing})) * (copy[i - 1] - (1 + p * spacing));
            CHECK(std::abs(together / double(n)) <= 5 * spacing * spacing * p * (1 - p) / std::sqrt(double(n)) + 1e-12);
        }
    }
    TEST_CASE("a thousand updates of 0.001: what each recipe makes of them") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            Walk nearest(1, Dtype::bf16, false, 1, 1), random(200, Dtype::bf16, false, 1, 1), master(200, Dtype::f32, true, 1, 1);
            nearest.steps(device, Rounding::nearest, 1, 1000, 0.001f);
            random.steps(device, Rounding::stochastic, 1, 1000, 0.001f);
            master.steps(device, Rounding::stochastic, 1, 1000, 0.001f);
            CHECK(nearest.arena.master.at(0) == 1);
            CHECK(std::abs(mean(random.arena.master.values())) <= 0.01);
            CHECK(deviation(random.arena.master.values()) == doctest::Approx(0.04).epsilon(0.3));
            CHECK(std::abs(master.arena.master.at(7)) <= 2e-5);
        }
    }
    TEST_CASE("sums over micro-batches: exact in f32; in bf16 they stop where a term is below half a step (A12)") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            for (const auto& [term, times, exact, stops] : {std::tuple{1.0, 1024, 1024.0, 256.0}, {stored(0.01, Dtype::bf16), 512, 512 * stored(0.01, Dtype::bf16), 4.0}}) {
                Owned full(Dtype::f32, {1}), low(Dtype::bf16, {1}), part(Dtype::f32, {1});
                full.set(0, 0), low.set(0, 0), part.set(0, term);
                TestContext ctx(device);
                for (int i = 0; i < times; i++) {
                    device.elementwise.add(ctx, full, full, part);
                    device.elementwise.add(ctx, low, low, part);
                }
                CHECK(full.at(0) == doctest::Approx(exact).epsilon(1e-6));
                CHECK(low.at(0) == stops);
            }
        }
    }
    TEST_CASE("a second moment in bf16 never shrinks by a decay of 0.999, by one of 0.95 it does (A12)") {
        for (const Device& device : test_devices())
            for (const auto& [beta2, shrinks] : {std::pair{0.999f, false}, {0.95f, true}}) {
                INFO(on(device)); CAPTURE(beta2);
                const Arena arena(1, Dtype::f32, false);
                Owned m(Dtype::bf16, {1}), v(Dtype::bf16, {1}), grad(Dtype::f32, {1}), grad_scale(Dtype::f32, {1});
                m.set(0, 0), v.set(0, 0.001), grad.set(0, 0), grad_scale.set(0, 1);
                const double before = v.at(0);
                TestContext ctx(device);
                for (int64_t t = 1; t <= 1000; t++)
                    device.adamw.update(ctx, {.weights = arena.weights(Rounding::nearest, t), .m = m, .v = v, .grad = grad, .grad_scale = grad_scale, .lr = 0, .beta1 = 0.9f,
                                              .beta2 = beta2, .eps = 1e-8f, .t = t});
                CHECK((shrinks ? v.at(0) < 1e-6 : v.at(0) == before));
            }
    }
    TEST_CASE("restart: the copy of a step is had again from the master and the step alone") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            Walk whole(1003, Dtype::f32, true, 0.3, 1);
            whole.steps(device, Rounding::stochastic, 1, 5, 0.001f);
            Walk again(1003, Dtype::f32, true, 0, 1);
            std::memcpy(again.arena.master.t.data, whole.arena.master.t.data, whole.arena.master.t.bytes());
            refresh(device, again.arena.weights(Rounding::stochastic, 5));
            CHECK(same_bits(again.arena.copy, whole.arena.copy));
            refresh(device, again.arena.weights(Rounding::stochastic, 6));
            CHECK(!same_bits(again.arena.copy, whole.arena.copy));
        }
    }
    TEST_CASE("mesh: ranks that own parts of a parameter store what one rank stores") {
        constexpr int64_t n = 6000;
        for (const Device& device : test_devices()) {
            INFO(on(device));
            for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
                const auto walked = [&](int64_t first, int64_t count) {
                    Walk part(count, dtype, dtype == Dtype::f32, 0, 1);
                    part.arena.host_segments[0].element = first;
                    std::memcpy(part.arena.segments.t.data, part.arena.host_segments.data(), sizeof(Segment));
                    part.arena.master.fill([=](int64_t i) { return stored(0.02 * std::sin(double(first + i)), Dtype::bf16); });
                    part.grad.fill([=](int64_t i) { return std::cos(double(first + i)); });
                    part.steps(device, Rounding::stochastic, 1, 4, 1e-4f);
                    return std::pair(part.arena.master.values(), part.arena.copy.values());
                };
                const auto whole = walked(0, n);
                std::pair<std::vector<double>, std::vector<double>> parts;
                for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1000}, {1000, 8}, {1008, 3992}, {5000, 1000}}) {
                    const auto part = walked(first, count);
                    parts.first.insert(parts.first.end(), part.first.begin(), part.first.end());
                    parts.second.insert(parts.second.end(), part.second.begin(), part.second.end());
                }
                CHECK(parts == whole);
            }
        }
    }
    TEST_CASE("a coarse f32 master is what a bf16 master would be, to the bit") {
        for (const Device& device : test_devices())
            for (Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
                Walk low(500, Dtype::bf16, false, 0.5, 1), coarse(500, Dtype::f32, true, 0.5, 1);
                coarse.arena.host_segments[0].coarse = 1;
                std::memcpy(coarse.arena.segments.t.data, coarse.arena.host_segments.data(), sizeof(Segment));
                low.steps(device, rounding, 1, 50, 1e-3f);
                coarse.steps(device, rounding, 1, 50, 1e-3f);
                CHECK(low.arena.master.values() == coarse.arena.master.values());
                CHECK(low.arena.master.values() == coarse.arena.copy.values());
            }
    }
    TEST_CASE("what a step reports: elements that stayed, sizes of update and weights") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
                // Segments over several blocks of either device, of one element, and of none.
                const std::vector<Segment> parts{{.first = 3, .count = 40000, .key = 1}, {.first = 40010, .count = 1, .key = 2}, {.first = 40011, .count = 0, .key = 3},
                                                 {.first = 40020, .count = 77, .key = 4}};
                Walk walk(41000, dtype, dtype == Dtype::f32, 0, 1, parts);
                walk.arena.master.fill([](int64_t i) { return stored(0.02 * std::sin(double(i)), Dtype::bf16); });
                walk.grad.fill([](int64_t i) { return i % 3 == 0 ? 0.0 : i % 2 ? 1.0 : -1e-3; });
                Adamw call = walk.call(Rounding::nearest, 1, 2e-5f);
                call.weights.changes = walk.arena.changes;
                const std::vector<double> before = walk.arena.master.values();
                TestContext ctx(device, device.adamw.workspace_bytes(call));
                device.adamw.update(ctx, call);
                const std::vector<double> after = walk.arena.master.values(), changes = walk.arena.changes.values();
                for (size_t k = 0; k < parts.size(); k++) {
                    double unchanged = 0, step = 0, size = 0;
                    for (size_t i = size_t(parts[k].first); i < size_t(parts[k].first + parts[k].count); i++)
                        unchanged += after[i] == before[i], step += (after[i] - before[i]) * (after[i] - before[i]), size += before[i] * before[i];
                    CHECK(changes[3 * k] == unchanged);
                    CHECK(changes[3 * k + 1] == doctest::Approx(step).epsilon(1e-5));
                    CHECK(changes[3 * k + 2] == doctest::Approx(size).epsilon(1e-5));
                }
                walk.grad_scale.set(0, NAN);
                device.adamw.update(ctx, call);
                CHECK(walk.arena.master.values() == after);
                CHECK(walk.arena.changes.values() == std::vector<double>(parts.size() * 3, 0.0));
            }
        }
    }
    TEST_CASE("a place in the parameter that is no multiple of eight is refused") {
        for (const Device& device : test_devices())
            if (!stops_kernels(device))
                CHECK(refusal([&] { refresh(device, Arena(10, Dtype::f32, true, {{.first = 0, .count = 10, .element = 4}}).weights(Rounding::nearest, 1)); }) != "");
    }
    TEST_CASE("same bits for any number of threads and any schedule") {
        for (const Device& device : test_devices()) {
            const int64_t n = in_harness(device) ? 30000 : 300000;
            check_repeatable(device, [&] {
                Walk walk(n, Dtype::bf16, false, 0.1, 1);
                Adamw call = walk.call(Rounding::stochastic, 1, 1e-4f);
                call.weights.changes = walk.arena.changes;
                TestContext ctx(device, device.adamw.workspace_bytes(call));
                device.adamw.update(ctx, call);
                return list(walk.arena.master, walk.m, walk.v, walk.arena.changes);
            });
        }
    }
    TEST_CASE("the table of recipes") {
        const auto of = [](Recipe r, Only only = Only::all) { return precision_of({.recipe = r, .only = only}); };
        CHECK(!of(Recipe::fp32).has_copy());
        CHECK(of(Recipe::bf16).master == Dtype::bf16);
        CHECK(!of(Recipe::bf16_sr).has_copy());
        CHECK(of(Recipe::bf16_sr).rounding == Rounding::stochastic);
        CHECK(of(Recipe::bf16_master_sr).has_copy());
        CHECK(of(Recipe::bf16_master_sr).rounding == Rounding::stochastic);
        CHECK(of(Recipe::bf16_master).rounding == Rounding::nearest);
        CHECK(of(Recipe::mixed).vector == Dtype::f32);
        CHECK(of(Recipe::bf16_sr, Only::gains).master == Dtype::f32);
        CHECK(is_coarse({.recipe = Recipe::bf16_sr, .only = Only::gains}, ParameterClass::gains));
        CHECK(!is_coarse({.recipe = Recipe::bf16_sr, .only = Only::gains}, ParameterClass::matrices));
        CHECK(!is_coarse({.recipe = Recipe::bf16_sr}, ParameterClass::gains));
    }
}

}  // namespace
