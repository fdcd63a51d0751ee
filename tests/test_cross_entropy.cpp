#include "pointwise_device.h"

using namespace clover;
using namespace clover::test;

namespace {

struct Losses {
    std::vector<double> loss, dlogits;
};

/// The definition, in Real.
template <class Real>
Losses plain_cross_entropy(const std::vector<double>& logits, const std::vector<double>& targets, size_t V, double scale, Dtype storage) {
    Losses r;
    for (size_t row = 0; row < targets.size(); row++) {
        const double* const x = logits.data() + row * V;
        Real maximum = Real(x[0]), sum = 0;
        for (size_t k = 0; k < V; k++) maximum = std::max(maximum, Real(x[k]));
        for (size_t k = 0; k < V; k++) sum += std::exp(Real(x[k]) - maximum);
        const bool trained = targets[row] >= 0;
        r.loss.push_back(trained ? double(std::log(sum) + (maximum - Real(x[size_t(targets[row])]))) : 0);
        for (size_t k = 0; k < V; k++) {
            const Real gradient = Real(scale) * (std::exp(Real(x[k]) - maximum) / sum - (double(k) == targets[row] ? 1 : 0));
            r.dlogits.push_back(trained ? stored(double(gradient), storage) : 0);
        }
    }
    return r;
}

/// Targets spread over the vocabulary, every third negative if so asked.
Owned make_targets(int64_t R, int64_t V, bool some_negative) {
    Owned targets(Dtype::i32, {R});
    for (int64_t r = 0; r < R; r++) targets.set(r, some_negative && r % 3 == 1 ? -100 : double((r * 7919 + V - 1) % V));
    return targets;
}

void check_against_f64(const Device& device, int64_t R, int64_t V, double spread, Dtype dtype) {
    INFO(on(device)); CAPTURE(R); CAPTURE(V); CAPTURE(spread); CAPTURE(int(dtype));
    constexpr float scale = 0.125f;
    Owned logits = random_tensor(Dtype::f32, {R, V}, 1, spread, 3);
    const Owned targets = make_targets(R, V, true);
    // A target of probability near 1 has a loss and a gradient near 0, which are differences of numbers near 1.
    for (int64_t r = 0; r < R; r++)
        if (targets.at(r) >= 0) logits.set(r * V + int64_t(targets.at(r)), -spread);
    Owned loss = unwritten(device, Dtype::f32, {R}), loss_alone = unwritten(device, Dtype::f32, {R}), dlogits = unwritten(device, dtype, {R, V});
    TestContext ctx(device);
    device.cross_entropy.run(ctx, {.loss = loss, .dlogits = dlogits, .logits = logits, .targets = targets, .scale = scale});
    device.cross_entropy.run(ctx, {.loss = loss_alone, .logits = logits, .targets = targets});
    CHECK(same_bits(loss, loss_alone));

    const Losses exact = plain_cross_entropy<double>(logits.values(), targets.values(), size_t(V), scale, Dtype::f32);
    const Losses plain = plain_cross_entropy<float>(logits.values(), targets.values(), size_t(V), scale, dtype);
    CHECK(normalised_error(loss.values(), exact.loss) <= 1e-5);
    // One class alone has loss and gradient 0, however far its logit is.
    if (V == 1)
        for (double g : dlogits.values()) CHECK(g == 0);
    else
        check_close(dlogits.values(), exact.dlogits, plain.dlogits, dtype, 3);
    if (dtype == Dtype::f32) {
        device.cross_entropy.run(ctx, {.loss = loss, .dlogits = logits, .logits = logits, .targets = targets, .scale = scale});
        CHECK(same_bits(logits, dlogits));
        CHECK(same_bits(loss, loss_alone));
    }
}

struct Rows {
    std::vector<double> loss, dlogits;
};
Rows run(const Device& device, const std::vector<std::vector<double>>& rows, const std::vector<int>& classes, float scale) {
    const int64_t R = int64_t(rows.size()), V = int64_t(rows[0].size());
    Owned logits(Dtype::f32, {R, V}), targets(Dtype::i32, {R}), loss = unwritten(device, Dtype::f32, {R}), dlogits = unwritten(device, Dtype::f32, {R, V});
    targets.fill([&](int64_t r) { return classes[size_t(r)]; });
    logits.fill([&](int64_t i) { return rows[size_t(i / V)][size_t(i % V)]; });
    TestContext ctx(device);
    device.cross_entropy.run(ctx, {.loss = loss, .dlogits = dlogits, .logits = logits, .targets = targets, .scale = scale});
    return {loss.values(), dlogits.values()};
}

/// One trained token of class 0 in the first micro-batch, three of class 1 in the second, logits (b, 0) with b = 0.
void check_unequal_micro_batches(const Device& device) {
    INFO(on(device));
    double gradient_of_b = 0;
    for (const std::vector<int>& micro_batch : {std::vector<int>{0, -1, -1}, std::vector<int>{1, 1, 1}, std::vector<int>{-1, -1, -1}}) {
        const Rows r = run(device, {{0, 0}, {0, 0}, {0, 0}}, micro_batch, 1.0f / 4);
        for (size_t i = 0; i < 3; i++) {
            gradient_of_b += r.dlogits[2 * i];
            CHECK(std::abs(r.loss[i] - (micro_batch[i] < 0 ? 0 : std::log(2.0))) <= 1e-7);
        }
    }
    CHECK(gradient_of_b == 0.25);
}

void check_far_logits(const Device& device) {
    INFO(on(device));
    // The maximum is taken out: an offset of all logits changes nothing.
    for (double offset : {0.0, 1e4, -1e4, 3e38, -3e38}) {
        const Rows r = run(device, {std::vector<double>(33, offset)}, {32}, 1);
        CHECK(std::abs(r.loss[0] - std::log(33.0)) <= 1e-6);
        CHECK(std::abs(r.dlogits[0] - 1.0 / 33) <= 1e-7);
    }
    // Rising rows replace the running maximum at every step, falling ones never; masked logits have no share.
    for (size_t V : {100, 9000}) {
        std::vector<double> rising(V), falling(V), masked(V, -INFINITY);
        for (size_t k = 0; k < V; k++) rising[k] = 0.5 * double(k), falling[k] = -rising[k];
        masked[V / 2] = masked[V - 1] = 2;
        const Rows r = run(device, {rising, falling, masked}, {int(V) - 1, 0, int(V) - 1}, 1);
        const double geometric = -std::log1p(-std::exp(-0.5));
        CHECK(std::abs(r.loss[0] - geometric) <= 1e-6);
        CHECK(std::abs(r.loss[1] - geometric) <= 1e-6);
        CHECK(std::abs(r.loss[2] - std::log(2.0)) <= 1e-6);
        CHECK(r.dlogits[2 * V] == 0);
        CHECK(std::abs(r.dlogits[2 * V + V / 2] - 0.5) <= 1e-6);
    }
    // What is not a number is not hidden, wherever it stands.
    for (size_t at : {0, 40, 8999}) {
        std::vector<double> row(9000, -INFINITY);
        row[at] = NAN;
        CHECK(std::isnan(run(device, {row}, {5}, 1).loss[0]));
        row.assign(9000, 1.0);
        row[at] = NAN;
        CHECK(std::isnan(run(device, {row}, {5}, 1).loss[0]));
    }
}

/// One rank's columns of the vocabulary.
struct Shard {
    int64_t first, width;
    Owned logits, targets, maximum, sum, target, loss, dlogits;
    Shard(const Device& device, const std::vector<double>& all, const Owned& targets_, int64_t V, int64_t first_, int64_t width_, Dtype dtype)
        : first(first_), width(width_), logits(Dtype::f32, {targets_.t.count(), width}), targets(copy_of(targets_)),
          maximum(unwritten(device, Dtype::f32, {targets_.t.count()})), sum(unwritten(device, Dtype::f32, {targets_.t.count()})),
          target(unwritten(device, Dtype::f32, {targets_.t.count()})), loss(unwritten(device, Dtype::f32, {targets_.t.count()})),
          dlogits(unwritten(device, dtype, {targets_.t.count(), width})) {
        logits.fill([&](int64_t i) { return all[size_t(i / width * V + first + i % width)]; });
    }
    CrossEntropyShard call(float scale) const {
        return {.loss = loss, .dlogits = dlogits, .logits = logits, .targets = targets, .first = first, .scale = scale,
                .maximum = maximum, .sum = sum, .target = target};
    }
};

/// What the ranks do between the two calls.
void combine(std::vector<Shard>& shards, int64_t R) {
    for (int64_t r = 0; r < R; r++) {
        double maximum = -INFINITY, sum = 0, target = 0;
        for (const Shard& s : shards) maximum = std::max(maximum, s.maximum.at(r));
        for (const Shard& s : shards) sum += s.sum.at(r) * std::exp(s.maximum.at(r) - maximum), target += s.target.at(r);
        for (Shard& s : shards) s.maximum.set(r, maximum), s.sum.set(r, sum), s.target.set(r, target);
    }
}

/// Statistics, combination and finish give what one rank with the whole vocabulary gets, targets at the shards' edges among them.
std::vector<Owned> sharded(const Device& device, const std::vector<int64_t>& edges, Dtype dtype, double spread) {
    INFO(on(device)); CAPTURE(edges.size()); CAPTURE(int(dtype)); CAPTURE(spread);
    constexpr float scale = 0.25f;
    const int64_t V = edges.back(), R = 9;
    const Owned logits = random_tensor(Dtype::f32, {R, V}, 5, spread, -2);
    Owned targets = make_targets(R, V, true);
    for (size_t e = 1; e < edges.size(); e++) targets.set(int64_t(3 * e - 3), double(edges[e] - 1)), targets.set(int64_t(3 * e - 1), double(edges[e] % V));
    const std::vector<double> all = logits.values();
    std::vector<Shard> shards;
    for (size_t e = 1; e < edges.size(); e++) shards.emplace_back(device, all, targets, V, edges[e - 1], edges[e] - edges[e - 1], dtype);
    TestContext ctx(device);
    for (Shard& s : shards) device.cross_entropy.statistics(ctx, s.call(scale));
    combine(shards, R);
    for (Shard& s : shards) device.cross_entropy.finish(ctx, s.call(scale));

    const Losses exact = plain_cross_entropy<double>(all, targets.values(), size_t(V), scale, Dtype::f32);
    const Losses plain = plain_cross_entropy<float>(all, targets.values(), size_t(V), scale, dtype);
    std::vector<double> dlogits(all.size());
    std::vector<Owned> results;
    for (Shard& s : shards) {
        CHECK(normalised_error(s.loss.values(), exact.loss) <= 1e-5);
        for (int64_t i = 0; double g : s.dlogits.values()) dlogits[size_t(i / s.width * V + s.first + i % s.width)] = g, i++;
        results.push_back(std::move(s.loss));
        results.push_back(std::move(s.dlogits));
    }
    check_close(dlogits, exact.dlogits, plain.dlogits, dtype, 3);
    return results;
}

TEST_SUITE("cross_entropy") {
    TEST_CASE("loss and gradient are the definition in f64") {
        for (const Device& device : test_devices())
            for (Dtype dtype : float_dtypes)
                for (int64_t V : {1, 2, 15, 16, 17, 31, 33, 64, 1000, 4097, 50257})
                    for (int64_t R : {1, 2, 5})
                        for (double spread : {0.02, 1.0, 10.0})
                            if (!in_harness(device) || V < 10000 || (R == 1 && spread == 1)) check_against_f64(device, R, V, spread, dtype);
    }
    TEST_CASE("the gradient's formula is finite differences") {
        const std::vector<double> logits = random_tensor(Dtype::f32, {2, 17}, 1).values(), targets = {3, 16};
        const auto total = [&](const std::vector<double>& x) {
            const Losses l = plain_cross_entropy<double>(x, targets, 17, 1, Dtype::f32);
            return 0.5 * (l.loss[0] + l.loss[1]);
        };
        CHECK(normalised_error(plain_cross_entropy<double>(logits, targets, 17, 0.5, Dtype::f32).dlogits,
                               finite_differences(logits, total)) <= 1e-8);
    }
    TEST_CASE("unequal numbers of trained tokens in micro-batches") {
        for (const Device& device : test_devices()) check_unequal_micro_batches(device);
    }
    TEST_CASE("uniform logits cost log V") {
        for (const Device& device : test_devices())
            CHECK(std::abs(run(device, {std::vector<double>(50257, 0.0)}, {50256}, 1).loss[0] - 10.824905) <= 1e-6);
    }
    TEST_CASE("far, masked and undefined logits") {
        for (const Device& device : test_devices()) check_far_logits(device);
    }
    TEST_CASE("a target beyond the vocabulary is refused") {
        for (const Device& device : test_devices())
            if (!stops_kernels(device)) CHECK(refusal([&] { run(device, {{0, 0}, {0, 0}}, {1, 2}, 1); }) != "");
    }
    TEST_CASE("a vocabulary split over ranks") {
        for (const Device& device : test_devices())
            for (Dtype dtype : float_dtypes) {
                for (const std::vector<int64_t>& edges : {std::vector<int64_t>{0, 500, 1000}, {0, 333, 700, 1003}, {0, 1, 64, 4161}, {0, 77}})
                    for (double spread : {0.1, 3.0}) sharded(device, edges, dtype, spread);
                check_repeatable(device, [&] { return sharded(device, {0, 333, 700, 1003}, dtype, 3); });
            }
    }
    TEST_CASE("same bits for any number of threads and any schedule") {
        for (const Device& device : test_devices())
            for (Dtype dtype : {Dtype::f32, Dtype::bf16})
                check_repeatable(device, [&] {
                    const int64_t R = in_harness(device) ? 5 : 13, V = in_harness(device) ? 2003 : 10007;
                    const Owned logits = random_tensor(Dtype::f32, {R, V}, 1), targets = make_targets(R, V, true);
                    Owned loss = unwritten(device, Dtype::f32, {R}), dlogits = unwritten(device, dtype, {R, V});
                    TestContext ctx(device);
                    device.cross_entropy.run(ctx, {.loss = loss, .dlogits = dlogits, .logits = logits, .targets = targets});
                    return list(loss, dlogits);
                });
    }
}

}  // namespace
