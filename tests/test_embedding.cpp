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

void check_forward(const Device& device, EmbeddingShape s, Dtypes dtypes, bool with_positions, bool with_past) {
    INFO(on(device)); CAPTURE(s.B); CAPTURE(s.T); CAPTURE(s.C); CAPTURE(int(dtypes.activation)); CAPTURE(int(dtypes.weight)); CAPTURE(with_past);
    const int64_t N = s.B * s.T;
    const Owned ids = ids_below(s.V, N), table = random_tensor(dtypes.weight, {s.V, s.C}, 1), positions = random_tensor(dtypes.weight, {s.P, s.C}, 2);
    Owned out = unwritten(device, dtypes.activation, {N, s.C}), past(Dtype::i32, {s.B});
    for (int64_t b = 0; b < s.B; b++) past.set(b, double((b * 3 + 1) % (s.P - s.T + 1)));
    TestContext ctx(device);
    device.embedding.forward(ctx, {.out = out, .ids = ids, .table = table, .positions = with_positions ? positions.t : Tensor{}, .sequence = s.T,
                      .past = with_past ? past.t : Tensor{}});
    const std::vector<double> got = out.values(), tokens = table.values(), places = positions.values();
    for (int64_t n = 0; n < N; n++) {
        const int64_t place = (with_past ? int64_t(past.at(n / s.T)) : 0) + n % s.T, id = int64_t(ids.at(n));
        for (int64_t c = 0; c < s.C; c++) {
            const double sum = tokens[size_t(id * s.C + c)] + (with_positions ? places[size_t(place * s.C + c)] : 0.0);
            CHECK(got[size_t(n * s.C + c)] == stored(double(float(sum)), dtypes.activation));
        }
    }
}

/// The norm that follows, done in the same call, gives what the lookup and then the norm give.
std::vector<Owned> looked_up_and_normed(const Device& device, EmbeddingShape s, Dtypes dtypes, NormKind kind) {
    INFO(on(device)); CAPTURE(s.C); CAPTURE(int(dtypes.activation)); CAPTURE(int(dtypes.weight)); CAPTURE(int(kind));
    const int64_t N = s.B * s.T;
    const Owned ids = ids_below(s.V, N), table = random_tensor(dtypes.weight, {s.V, s.C}, 1), positions = random_tensor(dtypes.weight, {s.P, s.C}, 2);
    const Owned weight = random_tensor(dtypes.weight, {s.C}, 3, 1, 1), bias = random_tensor(dtypes.weight, {s.C}, 4);
    const bool layernorm = kind == NormKind::layernorm;
    struct Results {
        Owned out, y, mean, rstd;
    };
    const auto run = [&](bool fused) {
        Results r{unwritten(device, dtypes.activation, {N, s.C}), unwritten(device, dtypes.activation, {N, s.C}), Owned(Dtype::f32, {N}),
                  unwritten(device, Dtype::f32, {N})};
        if (layernorm) r.mean.forget(device);
        const NormForward norm{.kind = kind, .eps = 1e-5f, .y = r.y, .mean = layernorm ? r.mean.t : Tensor{}, .rstd = r.rstd, .x = r.out,
                               .weight = weight, .bias = layernorm ? bias.t : Tensor{}};
        TestContext ctx(device);
        device.embedding.forward(ctx, {.out = r.out, .ids = ids, .table = table, .positions = positions, .sequence = s.T, .norm = fused ? &norm : nullptr});
        if (!fused) device.norm.forward(ctx, norm);
        return r;
    };
    Results one = run(true);
    const Results two = run(false);
    CHECK(same_bits(one.out, two.out));
    CHECK(normalised_error(one.rstd.values(), two.rstd.values()) <= 1e-6);
    if (layernorm) CHECK(normalised_error(one.mean.values(), two.mean.values()) <= 1e-5);
    // A sum in another order may round to another 16-bit number, but rarely.
    CHECK(normalised_error(one.y.values(), two.y.values()) <= (dtypes.activation == Dtype::f32 ? 1e-6 : 1e-4));
    return list(one.out, one.y, one.mean, one.rstd);
}

void run_backward(const Device& device, const EmbeddingBackward& call) {
    TestContext ctx(device, device.embedding.backward_workspace_bytes(call));
    device.embedding.backward(ctx, call);
}

void check_backward(const Device& device, EmbeddingShape s, Dtype dtype) {
    INFO(on(device)); CAPTURE(s.B); CAPTURE(s.T); CAPTURE(s.C); CAPTURE(int(dtype));
    const int64_t N = s.B * s.T;
    const Owned ids = ids_below(s.V, N), dout = random_tensor(dtype, {N, s.C}, 1);
    Owned dtable = random_tensor(Dtype::f32, {s.V, s.C}, 2), dpositions = random_tensor(Dtype::f32, {s.P, s.C}, 3);
    std::vector<double> want_table = dtable.values(), want_positions = dpositions.values();
    const std::vector<double> gradient = dout.values();
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0, id = int64_t(ids.at(n)); c < s.C; c++) {
            want_table[size_t(id * s.C + c)] += gradient[size_t(n * s.C + c)];
            want_positions[size_t(n % s.T * s.C + c)] += gradient[size_t(n * s.C + c)];
        }
    run_backward(device, {.dtable = dtable, .dpositions = dpositions, .dout = dout, .ids = ids, .sequence = s.T});
    CHECK(normalised_error(dtable.values(), want_table) <= 1e-5);
    CHECK(normalised_error(dpositions.values(), want_positions) <= 1e-5);
}

/// The message of the error that ids {0, 1, bad} give in forward and in backward.
std::vector<std::string> refusals(const Device& device, int32_t bad) {
    Owned ids(Dtype::i32, {3}), table(Dtype::f32, {7, 4}), out(Dtype::f32, {3, 4});
    ids.set(1, 1), ids.set(2, bad);
    TestContext ctx(device);
    return {refusal([&] { device.embedding.forward(ctx, {.out = out, .ids = ids, .table = table, .sequence = 3}); }),
            refusal([&] { run_backward(device, {.dtable = table, .dout = out, .ids = ids, .sequence = 3}); })};
}

constexpr EmbeddingShape shapes[] = {{1, 1, 1, 1, 1}, {2, 3, 15, 7, 5}, {3, 5, 16, 50, 8}, {1, 17, 33, 2, 17}, {4, 31, 100, 1000, 64}, {2, 50, 1000, 77, 51}};

TEST_SUITE("embedding") {
    TEST_CASE("forward looks up and adds the position") {
        for (const Device& device : test_devices())
            for (EmbeddingShape s : shapes)
                for (Dtypes dtypes : all_dtypes) {
                    check_forward(device, s, dtypes, false, false);
                    check_forward(device, s, dtypes, true, false);
                    check_forward(device, s, dtypes, true, true);
                }
    }
    TEST_CASE("the norm of the looked-up rows in the same call") {
        for (const Device& device : test_devices())
            for (NormKind kind : {NormKind::layernorm, NormKind::rmsnorm})
                for (Dtypes dtypes : all_dtypes) {
                    for (EmbeddingShape s : shapes)
                        if (s.C > 2) looked_up_and_normed(device, s, dtypes, kind);
                    looked_up_and_normed(device, {1, 2, 4096, 9, 2}, dtypes, kind);
                    check_repeatable(device, [&] { return looked_up_and_normed(device, shapes[3], dtypes, kind); });
                }
    }
    TEST_CASE("backward sums the rows of equal ids") {
        for (const Device& device : test_devices())
            for (EmbeddingShape s : shapes)
                for (Dtype dtype : float_dtypes) check_backward(device, s, dtype);
    }
    TEST_CASE("rows that do not occur are not touched") {
        for (const Device& device : test_devices()) {
            Owned dtable(Dtype::f32, {1 << 16, 3}), ids(Dtype::i32, {2});
            dtable.fill([](int64_t) { return -0.0; });  // an added 0 would take the sign away
            ids.set(0, 7), ids.set(1, 65535);
            const Owned dout = random_tensor(Dtype::f32, {2, 3}, 1);
            run_backward(device, {.dtable = dtable, .dout = dout, .ids = ids, .sequence = 2});
            int64_t touched = 0;
            for (double v : dtable.values()) touched += !std::signbit(v) || v != 0;
            CHECK(touched == 6);
        }
    }
    TEST_CASE("one id in thousands of positions") {
        for (const Device& device : test_devices())
            for (Dtype dtype : float_dtypes) {
                const int64_t N = 5000, C = 33, V = 7, last = N - 1;
                Owned ids(Dtype::i32, {N});
                ids.fill([&](int64_t n) { return n == last ? 6 : 3; });
                const Owned dout = random_tensor(dtype, {N, C}, 1, 1, 0.1);
                Owned dtable = random_tensor(Dtype::f32, {V, C}, 2);
                std::vector<double> want = dtable.values();
                for (int64_t i = 0; double g : dout.values()) want[size_t((i / C == last ? 6 : 3) * C + i % C)] += g, i++;
                run_backward(device, {.dtable = dtable, .dout = dout, .ids = ids, .sequence = N});
                CHECK(normalised_error(dtable.values(), want) <= 1e-5);
            }
    }
    TEST_CASE("an id outside the vocabulary is refused with its place") {
        for (const Device& device : test_devices())
            for (int32_t bad : {-1, 7, 1 << 30})
                for (const std::string& m : stops_kernels(device) ? std::vector<std::string>{} : refusals(device, bad)) {
                    INFO(on(device));
                    CHECK(!m.empty());
                    if (is_cuda(device)) continue;
                    CHECK(m.find(text("id ", bad)) != std::string::npos);
                    CHECK(m.find("position 2") != std::string::npos);
                }
    }
    TEST_CASE("positions beyond the table are refused") {
        for (const Device& device : test_devices()) {
            Owned ids(Dtype::i32, {2}), table(Dtype::f32, {7, 4}), positions(Dtype::f32, {5, 4}), out(Dtype::f32, {2, 4}), past(Dtype::i32, {1});
            TestContext ctx(device);
            const EmbeddingForward call{.out = out, .ids = ids, .table = table, .positions = positions, .sequence = 2, .past = past};
            past.set(0, 3);
            CHECK(refusal([&] { device.embedding.forward(ctx, call); }) == "");
            for (int out_of_range : {4, -1}) {
                if (stops_kernels(device)) continue;
                past.set(0, out_of_range);
                CHECK(refusal([&] { device.embedding.forward(ctx, call); }) != "");
            }
        }
    }
    TEST_CASE("same bits for any number of threads and any schedule") {
        for (const Device& device : test_devices())
            for (Dtype dtype : {Dtype::f32, Dtype::bf16})
                check_repeatable(device, [&] {
                    const int64_t T = in_harness(device) ? 50 : 300, N = 2 * T, C = 177;
                    const Owned ids = ids_below(50, N), table = random_tensor(dtype, {50, C}, 1), positions = random_tensor(dtype, {T, C}, 2);
                    const Owned dout = random_tensor(dtype, {N, C}, 3);
                    Owned out = unwritten(device, dtype, {N, C}), dtable(Dtype::f32, {50, C}), dpositions(Dtype::f32, {T, C});
                    TestContext ctx(device);
                    device.embedding.forward(ctx, {.out = out, .ids = ids, .table = table, .positions = positions, .sequence = T});
                    run_backward(device, {.dtable = dtable, .dpositions = dpositions, .dout = dout, .ids = ids, .sequence = T});
                    return list(out, dtable, dpositions);
                });
    }
}

}  // namespace
