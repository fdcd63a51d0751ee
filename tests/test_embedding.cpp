#include "pointwise_device.h"

using namespace clover;
using namespace clover::test;

namespace {

Owned ids_below(int64_t V, int64_t N) {
    Owned ids(Dtype::i32, {N});
    for (int64_t n = 0; n < N; n++) ids.set(n, double(random_bits(1, Stream::sampling, 0, 0, uint64_t(n))[0] % uint64_t(V)));
    return ids;
}

struct EmbeddingShape {
    int64_t B, T, C, V, P;
};

void check_forward(const EmbeddingOps& ops, EmbeddingShape s, Dtypes dtypes, bool with_positions, bool with_past) {
    CAPTURE(s.B); CAPTURE(s.T); CAPTURE(s.C); CAPTURE(int(dtypes.activation)); CAPTURE(int(dtypes.weight)); CAPTURE(with_past);
    const int64_t N = s.B * s.T;
    const Owned ids = ids_below(s.V, N), table = random_tensor(dtypes.weight, {s.V, s.C}, 1), positions = random_tensor(dtypes.weight, {s.P, s.C}, 2);
    Owned out(dtypes.activation, {N, s.C}), past(Dtype::i32, {s.B});
    for (int64_t b = 0; b < s.B; b++) past.set(b, double((b * 3 + 1) % (s.P - s.T + 1)));
    TestContext ctx(bare_device(), 64);
    ops.forward(ctx, {.out = out, .ids = ids, .table = table, .positions = with_positions ? positions.t : Tensor{}, .sequence = s.T,
                      .past = with_past ? past.t : Tensor{}});
    for (int64_t n = 0; n < N; n++) {
        const int64_t place = (with_past ? int64_t(past.at(n / s.T)) : 0) + n % s.T;
        for (int64_t c = 0; c < s.C; c++) {
            const double sum = table.at(int64_t(ids.at(n)) * s.C + c) + (with_positions ? positions.at(place * s.C + c) : 0.0);
            CHECK(out.at(n * s.C + c) == stored(double(float(sum)), dtypes.activation));
        }
    }
}

void check_backward(const EmbeddingOps& ops, EmbeddingShape s, Dtype dtype) {
    CAPTURE(s.B); CAPTURE(s.T); CAPTURE(s.C); CAPTURE(int(dtype));
    const int64_t N = s.B * s.T;
    const Owned ids = ids_below(s.V, N), dout = random_tensor(dtype, {N, s.C}, 1);
    Owned dtable = random_tensor(Dtype::f32, {s.V, s.C}, 2), dpositions = random_tensor(Dtype::f32, {s.P, s.C}, 3);
    std::vector<double> want_table = dtable.values(), want_positions = dpositions.values();
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < s.C; c++) {
            want_table[size_t(int64_t(ids.at(n)) * s.C + c)] += dout.at(n * s.C + c);
            want_positions[size_t(n % s.T * s.C + c)] += dout.at(n * s.C + c);
        }
    TestContext ctx(bare_device(), 64);
    ops.backward(ctx, {.dtable = dtable, .dpositions = dpositions, .dout = dout, .ids = ids, .sequence = s.T});
    CHECK(normalised_error(dtable.values(), want_table) <= 1e-5);
    CHECK(normalised_error(dpositions.values(), want_positions) <= 1e-5);
}

/// The message of the error that ids {0, 1, bad} give in forward and in backward.
std::vector<std::string> refusals(const EmbeddingOps& ops, int32_t bad) {
    Owned ids(Dtype::i32, {3}), table(Dtype::f32, {7, 4}), out(Dtype::f32, {3, 4});
    ids.set(1, 1), ids.set(2, bad);
    TestContext ctx(bare_device(), 64);
    std::vector<std::string> messages;
    try {
        ops.forward(ctx, {.out = out, .ids = ids, .table = table, .sequence = 3});
    } catch (const Error& e) {
        messages.push_back(e.what());
    }
    try {
        ops.backward(ctx, {.dtable = table, .dout = out, .ids = ids, .sequence = 3});
    } catch (const Error& e) {
        messages.push_back(e.what());
    }
    return messages;
}

constexpr EmbeddingShape shapes[] = {{1, 1, 1, 1, 1}, {2, 3, 15, 7, 5}, {3, 5, 16, 50, 8}, {1, 17, 33, 2, 17}, {4, 31, 100, 1000, 64}, {2, 50, 1000, 77, 51}};

TEST_SUITE("embedding") {
    TEST_CASE("forward looks up and adds the position") {
        for (EmbeddingShape s : shapes)
            for (Dtypes dtypes : all_dtypes) {
                check_forward(embedding_cpu, s, dtypes, false, false);
                check_forward(embedding_cpu, s, dtypes, true, false);
                check_forward(embedding_cpu, s, dtypes, true, true);
            }
    }
    TEST_CASE("backward sums the rows of equal ids") {
        for (EmbeddingShape s : shapes)
            for (Dtype dtype : {Dtype::f32, Dtype::bf16}) check_backward(embedding_cpu, s, dtype);
    }
    TEST_CASE("rows that do not occur are not touched") {
        Owned dtable(Dtype::f32, {1 << 16, 3}), ids(Dtype::i32, {2});
        for (int64_t i = 0; i < dtable.t.count(); i++) dtable.set(i, -0.0);  // an added 0 would take the sign away
        ids.set(0, 7), ids.set(1, 65535);
        const Owned dout = random_tensor(Dtype::f32, {2, 3}, 1);
        TestContext ctx(bare_device(), 64);
        embedding_cpu.backward(ctx, {.dtable = dtable, .dout = dout, .ids = ids, .sequence = 2});
        int64_t touched = 0;
        for (int64_t i = 0; i < dtable.t.count(); i++) touched += !std::signbit(dtable.at(i)) || dtable.at(i) != 0;
        CHECK(touched == 6);
    }
    TEST_CASE("an id outside the vocabulary is refused with its place") {
        for (int32_t bad : {-1, 7, 1 << 30}) {
            const std::vector<std::string> messages = refusals(embedding_cpu, bad);
            REQUIRE(messages.size() == 2);
            for (const std::string& m : messages) {
                CHECK(m.find(text("id ", bad)) != std::string::npos);
                CHECK(m.find("position 2") != std::string::npos);
            }
        }
    }
    TEST_CASE("positions beyond the table are refused") {
        Owned ids(Dtype::i32, {2}), table(Dtype::f32, {7, 4}), positions(Dtype::f32, {5, 4}), out(Dtype::f32, {2, 4}), past(Dtype::i32, {1});
        TestContext ctx(bare_device(), 64);
        const EmbeddingForward call{.out = out, .ids = ids, .table = table, .positions = positions, .sequence = 2, .past = past};
        past.set(0, 3);
        CHECK_NOTHROW(embedding_cpu.forward(ctx, call));
        for (int out_of_range : {4, -1}) {
            past.set(0, out_of_range);
            CHECK_THROWS_AS(embedding_cpu.forward(ctx, call), Error);
        }
    }
    TEST_CASE("same bits for any number of threads") {
        for (Dtype dtype : {Dtype::f32, Dtype::bf16})
            check_thread_independence([&] {
                const Owned ids = ids_below(50, 600), table = random_tensor(dtype, {50, 177}, 1), positions = random_tensor(dtype, {300, 177}, 2);
                const Owned dout = random_tensor(dtype, {600, 177}, 3);
                Owned out(dtype, {600, 177}), dtable(Dtype::f32, {50, 177}), dpositions(Dtype::f32, {300, 177});
                TestContext ctx(bare_device(), 64);
                embedding_cpu.forward(ctx, {.out = out, .ids = ids, .table = table, .positions = positions, .sequence = 300});
                embedding_cpu.backward(ctx, {.dtable = dtable, .dpositions = dpositions, .dout = dout, .ids = ids, .sequence = 300});
                return list(out, dtable, dpositions);
            });
    }
}

}  // namespace
