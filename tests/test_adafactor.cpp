// Adafactor: against the formulas in f64, against golden/make_optimizers.py, and cut over ranks.
#include "../kernels/adafactor.h"

#include <cstring>

#include "optimizer_golden.h"

using namespace clover;
using namespace clover::test;

namespace {

struct Options {
    float lr = 0.01f, beta1 = 0;
    bool parameter_scale = false, relative = false;
    int64_t min_factored = 0;
    Dtype master = Dtype::f32;
    bool copy = false;
};

/// A parameter of `rows` · `columns` elements (columns 0: a vector of `rows`).
struct Shape {
    int64_t rows, columns;
    float decay = 0;
    int64_t total() const { return columns ? rows * columns : rows; }
};

/// Segments of whole parameters, one after the other with a gap of `gap`.
std::vector<Segment> whole(const std::vector<Shape>& shapes, int64_t gap = 3) {
    std::vector<Segment> segments;
    int64_t first = 0;
    for (const Shape& s : shapes) {
        segments.push_back({.first = first, .count = s.total(), .weight_decay = s.decay, .key = uint32_t(segments.size()), .columns = s.columns});
        first += s.total() + gap;
    }
    return segments;
}
std::vector<int64_t> totals_of(const std::vector<Shape>& shapes) {
    std::vector<int64_t> totals;
    for (const Shape& s : shapes) totals.push_back(s.total());
    return totals;
}

/// Arenas of one rank.
struct Rank {
    Options o;
    std::vector<Segment> host_segments;
    AdafactorLayout layout;
    int64_t n;
    Owned master, copy, grad, grad_scale, segments, factors, tiles, state, m, sums, squares;

    [[gnu::noinline]] Rank(const Options& options, const std::vector<Segment>& parts, const std::vector<int64_t>& totals, int64_t elements)
        : o(options), host_segments(parts), layout(parts, totals, options.min_factored), n(elements), master(random_tensor(o.master, {n}, 1, 0.3)),
          copy(Dtype::bf16, {n}), grad(random_tensor(Dtype::f32, {n}, 2)), grad_scale(Dtype::f32, {1}), segments(Dtype::i32, {int64_t(parts.size()), segment_words}),
          factors(Dtype::i32, {int64_t(parts.size()), factors_words}), tiles(Dtype::i32, {int64_t(layout.tiles.size()), tile_words}),
          state(Dtype::f32, {layout.state}), m(Dtype::f32, {n}), sums(Dtype::f32, {layout.sums}), squares(Dtype::f32, {int64_t(parts.size()), 3}) {
        grad_scale.set(0, 0.25);
        std::memcpy(segments.t.data, parts.data(), segments.t.bytes());
        std::memcpy(factors.t.data, layout.factors.data(), factors.t.bytes());
        if (!layout.tiles.empty()) std::memcpy(tiles.t.data, layout.tiles.data(), tiles.t.bytes());
    }
    Adafactor call(int64_t t) const {
        const bool factored = layout.sums > 0;
        Adafactor a{.weights = {.master = master, .copy = o.copy ? copy.t : Tensor{}, .segments = segments}, .factors = factors,
                    .tiles = factored && !layout.tiles.empty() ? tiles.t : Tensor{}, .state = state, .m = o.beta1 > 0 ? m.t : Tensor{},
                    .sums = factored && !layout.tiles.empty() ? sums.t : Tensor{}, .squares = squares, .grad = grad, .grad_scale = grad_scale, .partials = layout.partials,
                    .lr = o.relative ? float(adafactor_relative_step(t)) : o.lr, .t = t};
        a.parameter_scale = o.parameter_scale, a.beta1 = o.beta1;
        return a;
    }
    void step(const Device& device, int64_t t) {
        const Adafactor a = call(t);
        TestContext ctx(device, device.adafactor.workspace_bytes(a));
        device.adafactor.statistics(ctx, a);
        device.adafactor.squares(ctx, a);
        device.adafactor.update(ctx, a);
        synchronize();
    }
};

int64_t end_of(const std::vector<Segment>& segments) { return segments.back().first + segments.back().count; }
Rank rank_of(const Options& o, const std::vector<Shape>& shapes) {
    const std::vector<Segment> segments = whole(shapes);
    return Rank(o, segments, totals_of(shapes), end_of(segments));
}

/// The header's formulas in f64 for one parameter.
struct Plain {
    std::vector<double> w, r, c, m, u;
    double scale = 0.25;
    void step(const Shape& s, const std::vector<double>& grad, const Adafactor& a, bool factored) {
        const size_t n = w.size(), columns = factored ? size_t(s.columns) : 1, rows = n / columns;
        const double beta2 = 1 - std::pow(double(a.t), -0.8);
        r.resize(factored ? rows : n), c.resize(factored ? columns : 0), m.resize(n), u.resize(n);
        std::vector<double> g2(n), row(rows), column(columns);
        for (size_t i = 0; i < n; i++) {
            u[i] = grad[i] * scale, g2[i] = u[i] * u[i] + 1e-30;
            row[i / columns] += g2[i] / double(columns), column[i % columns] += g2[i] / double(rows);
        }
        double mean = 0;
        for (size_t i = 0; i < r.size(); i++) r[i] = beta2 * r[i] + (1 - beta2) * row[i], mean += r[i] / double(r.size());
        for (size_t i = 0; i < c.size(); i++) c[i] = beta2 * c[i] + (1 - beta2) * column[i];
        double update_squares = 0, weight_squares = 0;
        for (size_t i = 0; i < n; i++) {
            u[i] /= std::sqrt(factored ? r[i / columns] * c[i % columns] / mean : r[i]);
            update_squares += u[i] * u[i] / double(n), weight_squares += w[i] * w[i] / double(n);
        }
        const double alpha = double(a.lr) * (a.parameter_scale ? std::max(1e-3, std::sqrt(weight_squares)) : 1) / std::max(1.0, std::sqrt(update_squares)), beta1 = a.beta1;
        for (size_t i = 0; i < n; i++) {
            m[i] = beta1 * m[i] + (1 - beta1) * alpha * u[i];
            w[i] -= (beta1 > 0 ? m[i] : alpha * u[i]) + double(a.lr) * double(s.decay) * w[i];
        }
    }
};

std::vector<double> part(const std::vector<double>& v, int64_t first, int64_t count) { return {v.begin() + first, v.begin() + first + count}; }

void check_against_f64(const Device& device, const Options& o, const std::vector<Shape>& shapes) {
    INFO(on(device)); CAPTURE(o.beta1); CAPTURE(o.parameter_scale); CAPTURE(o.min_factored); CAPTURE(int(o.master)); CAPTURE(shapes[0].rows); CAPTURE(shapes[0].columns);
    Rank rank = rank_of(o, shapes);
    const std::vector<double> before = rank.master.values(), grad = rank.grad.values();
    std::vector<Plain> plain(shapes.size());
    for (size_t k = 0; k < shapes.size(); k++) plain[k].w = part(before, rank.host_segments[k].first, shapes[k].total());
    for (int64_t t = 1; t <= 3; t++) {
        std::vector<double> g = grad;
        for (double& x : g) x = double(float(x * double(t)));
        fill(rank.grad, g);
        rank.step(device, t);
        for (size_t k = 0; k < shapes.size(); k++)
            plain[k].step(shapes[k], part(g, rank.host_segments[k].first, shapes[k].total()), rank.call(t), rank.layout.factors[k].factored());
    }
    const std::vector<double> after = rank.master.values(), state = rank.state.values(), copy = rank.copy.values();
    std::vector<bool> covered(after.size());
    for (size_t k = 0; k < shapes.size(); k++) {
        CAPTURE(k);
        const Segment& s = rank.host_segments[k];
        const std::vector<double> start = part(before, s.first, s.count), end = part(after, s.first, s.count);
        std::fill_n(covered.begin() + s.first, s.count, true);
        if (o.master == Dtype::f32) {
            std::vector<double> ours = end, want = plain[k].w;
            for (size_t i = 0; i < ours.size(); i++) ours[i] -= start[i], want[i] -= start[i];
            // Each of the three sums may round by half a distance between numbers of the weights' size.
            const double roundings = 3 * 0x1p-24 / normalised_error(start, plain[k].w);
            CHECK(normalised_error(ours, want) <= 1e-5 + roundings);
        } else {
            CHECK(normalised_error(end, plain[k].w) <= 1.01 * 3 * 0x1p-9);
        }
        const Factors& f = rank.layout.factors[k];
        const int64_t rows = f.factored() ? f.rows : s.count;
        CHECK(normalised_error(part(state, f.state, rows), plain[k].r) <= 2e-6);
        if (f.factored()) CHECK(normalised_error(part(state, f.state + rows, f.columns), plain[k].c) <= 2e-6);
    }
    int64_t wrong = 0;
    for (size_t i = 0; i < after.size(); i++)
        wrong += covered[i] ? o.copy && copy[i] != stored(after[i], Dtype::bf16) : after[i] != before[i];
    CHECK(wrong == 0);
}

const std::vector<Shape> mixed_shapes{{33, 20}, {17, 0, 0.1f}, {5, 130, 0.1f}, {1, 64}, {64, 1}, {400, 7}, {1, 0}, {16, 96}};

/// The parameters of `shapes` cut at multiples of eight over ranks, the sums added up between the calls.
std::vector<double> cut_over_ranks(const Device& device, const Options& o, const std::vector<Shape>& shapes, int64_t ranks, int64_t steps) {
    const std::vector<Segment> all = whole(shapes);
    Rank reference(o, all, totals_of(shapes), end_of(all));
    const std::vector<double> start = reference.master.values(), grad = reference.grad.values();
    std::vector<Rank> parts;
    for (int64_t r = 0; r < ranks; r++) {
        std::vector<Segment> segments = all;
        for (Segment& s : segments) {
            // Awkward shares: the middle rank's is the largest, some ranks have nothing.
            const int64_t from = s.count * r * (r + 1) / (ranks * (ranks + 1)) / 8 * 8, to = r + 1 == ranks ? s.count : s.count * (r + 1) * (r + 2) / (ranks * (ranks + 1)) / 8 * 8;
            s.element = from, s.first += from, s.count = to - from;
        }
        parts.emplace_back(o, segments, totals_of(shapes), end_of(all));
    }
    const auto add_up = [&](auto&& tensor_of) {
        std::vector<double> sum;
        for (Rank& p : parts) {
            const std::vector<double> own = tensor_of(p).values();
            sum.resize(own.size());
            for (size_t i = 0; i < own.size(); i++) sum[i] = double(float(sum[i] + own[i]));
        }
        for (Rank& p : parts) fill(tensor_of(p), sum);
    };
    for (int64_t t = 1; t <= steps; t++) {
        const auto each = [&](auto call) {
            for (Rank& p : parts) {
                const Adafactor a = p.call(t);
                TestContext ctx(device, device.adafactor.workspace_bytes(a));
                call(ctx, a);
                synchronize();
            }
        };
        each(device.adafactor.statistics);
        add_up([](Rank& p) -> Owned& { return p.sums; });
        each(device.adafactor.squares);
        add_up([](Rank& p) -> Owned& { return p.squares; });
        each(device.adafactor.update);
    }
    std::vector<double> gathered = start;
    for (const Rank& p : parts) {
        const std::vector<double> own = p.master.values();
        for (const Segment& s : p.host_segments) std::copy_n(own.begin() + s.first, s.count, gathered.begin() + s.first);
    }
    return gathered;
}

TEST_SUITE("adafactor") {
    TEST_CASE("the reference: 25 steps, with every option") {
        const OptimizerGolden golden;
        const std::vector<Shape> shapes{{12, 20}, {33, 5}, {17, 0}};
        for (const Device& device : test_devices())
            for (const auto& [name, o] : std::vector<std::pair<const char*, Options>>{{"plain", {}}, {"relative", {.parameter_scale = true, .relative = true}},
                                                                                      {"momentum", {.beta1 = 0.9f}},
                                                                                      {"unfactored", {.lr = 0.02f, .beta1 = 0.9f, .parameter_scale = true, .min_factored = 128}}}) {
                INFO(on(device));
                std::vector<Segment> segments = whole(shapes);
                for (int k = 0; k < 3; k++) segments[size_t(k)].first = OptimizerGolden::first[k], segments[size_t(k)].weight_decay = std::string(name) == "momentum" ? 0.1f : 0.0f;
                Rank rank(o, segments, totals_of(shapes), OptimizerGolden::elements);
                rank.grad_scale.set(0, 1);
                fill(rank.master, golden.arena("param"));
                for (int64_t t = 1; t <= OptimizerGolden::steps; t++) {
                    fill(rank.grad, golden.arena("grad", t - 1));
                    rank.step(device, t);
                }
                golden.check(rank.master.values(), name);
            }
    }
    TEST_CASE("the formulas in f64") {
        for (const Device& device : test_devices()) {
            for (const Options& o : {Options{}, Options{.beta1 = 0.9f, .parameter_scale = true, .copy = true}, Options{.min_factored = 16}, Options{.min_factored = 1000},
                                     Options{.parameter_scale = true, .relative = true, .master = Dtype::bf16}})
                check_against_f64(device, o, mixed_shapes);
            // Several tiles in both directions, and blocks of the update that begin within a row.
            check_against_f64(device, {.beta1 = 0.5f}, {{3, 2500}, {2100, 17, 0.1f}, {70, 1030}});
        }
    }
    TEST_CASE("the first step: R and C are the means of g², u has a root mean square of at most 1") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            Rank rank = rank_of({}, {{24, 40}});
            const std::vector<double> grad = rank.grad.values();
            rank.step(device, 1);
            double row = 0;
            for (size_t c = 0; c < 40; c++) row += 0.0625 * grad[3 * 40 + c] * grad[3 * 40 + c] / 40;
            CHECK(rank.state.at(3) == doctest::Approx(row).epsilon(1e-6));
            const double rms = std::sqrt(rank.squares.at(1) / 960);
            CHECK(rms > 0.5);
            CHECK(rms < 2);
            Rank still = rank_of({}, {{24, 40}});
            std::vector<double> change = rank.master.values();
            const std::vector<double> before = still.master.values();
            double squares = 0;
            for (size_t i = 0; i < 960; i++) squares += (change[i] - before[i]) * (change[i] - before[i]);
            CHECK(std::sqrt(squares / 960) <= 0.01 * (1 + 1e-5));
        }
    }
    TEST_CASE("a g² of rank 1 is had exactly: every element moves by lr") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            Rank rank = rank_of({}, {{24, 40}});
            rank.master.fill([](int64_t) { return 0.0; });
            rank.grad.fill([](int64_t i) { return (i % 3 ? 1 : -1) * std::exp(double(i / 40) / 7 - double(i % 40) / 5); });
            rank.step(device, 1);
            int64_t wrong = 0;
            const std::vector<double> w = rank.master.values();
            for (size_t i = 0; i < w.size(); i++) wrong += std::abs(w[i] + (i % 3 ? 0.01 : -0.01)) > 1e-8;
            CHECK(wrong == 0);
        }
    }
    TEST_CASE("a gradient of zeros moves nothing, and no number becomes NaN") {
        for (const Device& device : test_devices()) {
            Rank rank = rank_of({.beta1 = 0.9f}, {{24, 40}, {9, 0}});
            const Owned before = copy_of(rank.master);
            rank.grad.fill([](int64_t) { return 0.0; });
            for (int64_t t = 1; t <= 3; t++) rank.step(device, t);
            CHECK(same_bits(rank.master, before));
        }
    }
    TEST_CASE("cut over two and three ranks it is what one rank does") {
        const std::vector<Shape> shapes{{33, 20}, {17, 0, 0.1f}, {5, 130, 0.1f}, {400, 7}, {1, 0}, {70, 1030}};
        for (const Device& device : test_devices())
            for (const Options& o : {Options{}, Options{.beta1 = 0.9f, .parameter_scale = true}}) {
                const std::vector<double> one = cut_over_ranks(device, o, shapes, 1, 3);
                Rank rank = rank_of(o, shapes);
                const std::vector<double> start = rank.master.values();
                for (int64_t t = 1; t <= 3; t++) rank.step(device, t);
                CHECK(rank.master.values() == one);
                for (int64_t ranks : {2, 3}) {
                    INFO(on(device), ", ", ranks, " ranks");
                    std::vector<double> cut = cut_over_ranks(device, o, shapes, ranks, 3);
                    CHECK(normalised_error(cut, one) <= 1e-7);
                    std::vector<double> want = one;
                    for (size_t i = 0; i < cut.size(); i++) cut[i] -= start[i], want[i] -= start[i];
                    CHECK(normalised_error(cut, want) <= 1e-5);
                }
            }
    }
    TEST_CASE("a scale that is not a number leaves everything as it is") {
        for (const Device& device : test_devices()) {
            INFO(on(device));
            Rank rank = rank_of({.beta1 = 0.9f, .copy = true}, mixed_shapes);
            rank.step(device, 1);
            rank.grad_scale.set(0, NAN);
            const Owned master = copy_of(rank.master), copy = copy_of(rank.copy), state = copy_of(rank.state), m = copy_of(rank.m);
            rank.step(device, 2);
            CHECK(same_bits(rank.master, master));
            CHECK(same_bits(rank.copy, copy));
            CHECK(same_bits(rank.state, state));
            CHECK(same_bits(rank.m, m));
        }
    }
    TEST_CASE("same bits for any number of threads and any schedule") {
        for (const Device& device : test_devices())
            check_repeatable(device, [&] {
                Rank rank = rank_of({.beta1 = 0.9f, .parameter_scale = true}, in_harness(device) ? mixed_shapes : std::vector<Shape>{{300, 200}, {1000, 64}, {77, 0}, {40, 3000}});
                for (int64_t t = 1; t <= 2; t++) rank.step(device, t);
                return list(rank.master, rank.state, rank.m);
            });
    }
    TEST_CASE("the rate without one given") {
        CHECK(adafactor_relative_step(1) == 0.01);
        CHECK(adafactor_relative_step(10000) == 0.01);
        CHECK(adafactor_relative_step(40000) == 0.005);
    }
}

}  // namespace
