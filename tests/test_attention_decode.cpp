// Decoding with a cache gives what one forward over the whole sequence gives: a prompt and then token by token, pieces of any size,
// sequences of different lengths side by side.
#include "attention_reference.h"

using namespace clover;
using namespace clover::test;

namespace {

constexpr AttentionPosition kinds[] = {AttentionPosition::none, AttentionPosition::alibi, AttentionPosition::relative};

/// A cache and what the sequences of `p` have in it; decodes the next `Q` tokens of each.
struct Decoder {
    const Device& device;
    const AttentionProblem& p;
    int64_t capacity;
    Owned keys, values, past;

    /// The cache starts as NaN; unless the host is to write to it, kernels may not read it before they have written it.
    Decoder(const Device& device_, const AttentionProblem& p_, int64_t capacity_, bool host_writes = false)
        : device(device_), p(p_), capacity(capacity_), keys(p.qkv.t.dtype, {p.B, p.H, capacity, p.D}),
          values(p.qkv.t.dtype, {p.B, p.H, capacity, p.D}), past(Dtype::i32, {p.B}) {
        for (Owned* cache : {&keys, &values})
            if (host_writes)
                cache->fill([](int64_t) { return NAN; });
            else
                cache->forget(device);
    }

    /// Tokens past[b] … past[b] + Q − 1 of sequence b, put together from the rows of p.qkv.
    Owned next(int64_t Q) const {
        const int64_t C3 = p.H * 3 * p.D;
        Owned qkv(p.qkv.t.dtype, {p.B * Q, C3});
        const std::vector<double> all = p.qkv.values(), pasts = past.values();
        qkv.fill([&](int64_t i) {
            const int64_t b = i / (Q * C3);
            return all[size_t((b * p.T + int64_t(pasts[size_t(b)])) * C3 + i % (Q * C3))];
        });
        return qkv;
    }
    Owned step(int64_t Q) {
        const Owned qkv = next(Q);
        Owned out = unwritten(device, p.qkv.t.dtype, {p.B * Q, p.H * p.D});
        const AttentionDecode d{out, keys, values, qkv, past, p.position()};
        TestContext ctx(device, device.attention.decode_workspace_bytes(d));
        device.attention.decode(ctx, d);
        for (int64_t b = 0; b < p.B; b++) past.set(b, past.at(b) + double(Q));
        return out;
    }
    /// The rows of the full forward's `out` that step(Q) must give, taken before the step.
    std::vector<double> expected(const std::vector<double>& out, int64_t Q) const {
        std::vector<double> rows;
        const int64_t C = p.H * p.D;
        for (int64_t b = 0; b < p.B; b++) {
            const auto first = out.begin() + (b * p.T + int64_t(past.at(b))) * C;
            rows.insert(rows.end(), first, first + Q * C);
        }
        return rows;
    }
};

void check_pieces(const Device& device, const AttentionProblem& p, const std::vector<int64_t>& pieces, double tolerance) {
    INFO(on(device), ", position ", int(p.kind), ", D ", p.D);
    const std::vector<double> want = DenseAttention(p).forward().out;
    Decoder decoder(device, p, p.T);
    for (int64_t Q : pieces) {
        CAPTURE(Q);
        const std::vector<double> expected = decoder.expected(want, Q);
        CHECK(normalised_error(decoder.step(Q).values(), expected) < tolerance);
    }
}

/// Sequences of different lengths: each gets its own prompt in a batch of one, then all go on together.
void check_unequal_pasts(const Device& device, AttentionPosition kind, int64_t Q) {
    INFO(on(device), ", position ", int(kind), ", Q ", Q);
    const int64_t pasts[3] = {0, 21, 34};
    const AttentionProblem p(3, 60, 2, 20, kind);
    const std::vector<double> want = DenseAttention(p).forward().out;
    Decoder decoder(device, p, 64, true);
    for (int64_t b = 0; b < 3; b++)
        for (int64_t h = 0; h < p.H; h++)
            for (int64_t t = 0; t < pasts[b]; t++)
                for (int64_t c = 0; c < p.D; c++) {
                    const int64_t row = (b * p.T + t) * p.H * 3 * p.D + h * 3 * p.D + c, cache = ((b * p.H + h) * 64 + t) * p.D + c;
                    decoder.keys.set(cache, p.qkv.at(row + p.D));
                    decoder.values.set(cache, p.qkv.at(row + 2 * p.D));
                }
    for (int64_t b = 0; b < 3; b++) decoder.past.set(b, double(pasts[b]));
    for (int step = 0; step < 3; step++) {
        const std::vector<double> expected = decoder.expected(want, Q);
        CHECK(normalised_error(decoder.step(Q).values(), expected) < 1e-5);
    }
}

void check_refusals(const Device& device) {
    INFO(on(device));
    const AttentionProblem p(2, 10, 1, 8, AttentionPosition::relative);
    Decoder decoder(device, p, 6);
    const auto past_the_end = [&] {
        decoder.past.fill([](int64_t) { return 5; });
        decoder.step(2);
    };
    decoder.step(5);
    CHECK(refusal(past_the_end) != "");
    decoder.past.fill([](int64_t) { return 5; });
    decoder.step(1);
    CHECK(refusal([&] { decoder.step(1); }) != "");
    Decoder negative(device, p, 6);
    negative.past.set(1, -1);
    negative.past.set(0, 1);
    Owned out(Dtype::f32, {2, 8}), qkv(Dtype::f32, {2, 24});
    const AttentionDecode d{out, negative.keys, negative.values, qkv, negative.past, p.position()};
    TestContext ctx(device, device.attention.decode_workspace_bytes(d));
    CHECK(refusal([&] { device.attention.decode(ctx, d); }) != "");
}

}  // namespace

TEST_SUITE_BEGIN("attention decode");

TEST_CASE("decode: a prompt, then token by token") {
    for (const Device& device : test_devices())
        for (AttentionPosition kind : kinds)
            for (int64_t D : {1, 16, 20, 64}) {
                std::vector<int64_t> pieces = {17};
                pieces.insert(pieces.end(), 12, 1);
                check_pieces(device, AttentionProblem(2, 29, 3, D, kind), pieces, 1e-5);
            }
}

TEST_CASE("decode: two halves, the second with the first as its memory") {
    for (const Device& device : test_devices())
        for (AttentionPosition kind : kinds)
            for (int64_t n : {3, 5, 8, 33, 64}) check_pieces(device, AttentionProblem(1, 2 * n, 2, 16, kind), {n, n}, 1e-5);
}

TEST_CASE("decode: pieces of any size, over several tiles of keys") {
    for (const Device& device : test_devices())
        for (AttentionPosition kind : kinds) {
            check_pieces(device, AttentionProblem(1, 70, 1, 8, kind), {1, 2, 3, 4, 5, 6, 7, 9, 1, 11, 21}, 1e-5);
            if (!in_harness(device)) check_pieces(device, AttentionProblem(1, 1061, 1, 4, kind), {507, 13, 500, 37, 3, 1}, 1e-5);
            check_pieces(device, AttentionProblem(1, 325, 1, 4, kind), {257, 13, 17, 37, 1}, 1e-5);
        }
}

TEST_CASE("decode: sequences of different lengths side by side") {
    for (const Device& device : test_devices())
        for (AttentionPosition kind : kinds)
            for (int64_t Q : {1, 2, 7}) check_unequal_pasts(device, kind, Q);
}

TEST_CASE("decode bf16 and f16") {
    for (Dtype dtype : {Dtype::bf16, Dtype::f16})
        for (const Device& device : attention_devices())
            for (AttentionPosition kind : kinds) {
                const double tolerance = 2.5 * rounding_of(dtype);
                check_pieces(device, AttentionProblem(2, 40, 2, 20, kind, dtype), {20, 1, 1, 7, 11}, tolerance);
                check_pieces(device, AttentionProblem(2, 40, 2, 64, kind, dtype), {20, 1, 1, 7, 11}, tolerance);
                if (!in_harness(device)) check_pieces(device, AttentionProblem(1, 330, 2, 40, kind, dtype), {37, 1, 200, 5, 31, 32, 4, 3}, tolerance);
            }
}

TEST_CASE("decode: what does not fit the cache or the distances is refused") {
    for (const Device& device : test_devices())
        if (!stops_kernels(device)) check_refusals(device);
}

TEST_CASE("decode cuda: the same bits for any schedule") {
    for (const Device& device : test_devices())
        for (AttentionPosition kind : kinds)
            for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
                if (!is_cuda(device)) continue;
                INFO(on(device), ", position ", int(kind), ", ", name_of(dtype));
                const AttentionProblem p(2, 80, 2, 32, kind, dtype);
                std::vector<double> first;
                for (int seed : schedules(device)) {
                    CAPTURE(seed);
                    const LaunchOrder order(device, seed);
                    Decoder decoder(device, p, 80);
                    std::vector<double> all;
                    for (int64_t Q : {int64_t(70), int64_t(1), int64_t(3)})
                        for (double x : decoder.step(Q).values()) all.push_back(x);
                    if (first.empty()) first = all;
                    CHECK(all == first);
                }
            }
}

TEST_SUITE_END();
