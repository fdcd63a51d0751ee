// Whole models: causality, repeatability, the key/value cache, gradient accumulation, chunks of the head, all position schemes.
#include "../model/generate.h"

#include <omp.h>

#include "tiny.h"

using namespace clover;
using namespace clover::test;

namespace {

struct Variant {
    const char* family;
    std::vector<std::string> overrides;
};

// Every scheme of the block, in f32 and, for the two families, in the bf16 recipes.
const Variant variants[] = {
    {"bloom", {}},
    {"gopher", {}},
    {"bloom", {"precision.recipe=bf16-master"}},
    {"gopher", {"precision.recipe=bf16-master"}},
    {"gopher", {"precision.recipe=mixed"}},
    {"bloom", {"model.position=learned", "model.embedding_norm=false", "model.tie_embeddings=false"}},
    {"gopher", {"model.position=sinusoidal", "model.bias=none"}},
};

std::string name_of(const Variant& v) {
    std::string s = v.family;
    for (const std::string& o : v.overrides) s += " " + o;
    return s;
}

std::vector<float> gradients(TinyModel& t, Tensor ids, Tensor targets, float scale, bool fresh) {
    if (fresh) t.model.zero_gradients(t.ctx);
    t.model.forward(t.ctx, ids);
    t.model.loss_backward(t.ctx, t.losses, targets, scale, fresh);
    t.model.backward(t.ctx, ids, fresh);
    return floats_of(t.ctx.device, t.parameters.grad);
}

template <class F>
std::vector<float> gradients_and_logits(TinyModel& t, Tensor ids, Tensor targets, float scale, F look) {
    const std::vector<float> all = gradients(t, ids, targets, scale, true);
    look(t.all_logits());
    return all;
}

std::vector<double> widen(const std::vector<float>& x) { return {x.begin(), x.end()}; }

}  // namespace

TEST_SUITE("model") {
    TEST_CASE("changing token t leaves the logits before t bit-equal and changes those from t on") {
        for (const Device& device : test_devices())
            for (const Variant& v : variants) {
                INFO(on(device), ", ", name_of(v));
                TinyModel t(tiny_config(v.family, v.overrides), {.batch = 2, .sequence = 13, .training = true}, device);
                Owned ids = random_ids(26, 61, 1);
                t.model.forward(t.ctx, ids);
                const std::vector<double> before = t.all_logits();
                const int64_t changed = 13 + 7;  // token 7 of the second sequence
                ids.set(changed, double((int64_t(ids.at(changed)) + 1) % 61));
                t.model.forward(t.ctx, ids);
                const std::vector<double> after = t.all_logits();
                for (int64_t n = 0; n < 26; n++) {
                    const bool same = std::equal(before.begin() + n * 61, before.begin() + (n + 1) * 61, after.begin() + n * 61);
                    CHECK(same == (n < changed));
                }
            }
    }

    TEST_CASE("causal to the bit and repeatable where attention takes several tiles, by AMX where the CPU has it") {
        for (const Device& device : test_devices())
            for (const char* family : {"bloom", "gopher"})
                for (const char* recipe : {"fp32", "bf16-master"}) {
                    INFO(on(device), ", ", std::string(family), " ", std::string(recipe));
                    const int64_t n = in_harness(device) ? 130 : 300;
                    const Config c = tiny_config(family, {std::string("precision.recipe=") + recipe, "model.context=300", "model.hidden=64", "model.heads=2"});
                    TinyModel t(c, {.batch = 1, .sequence = n, .training = true}, device);
                    Owned ids = random_ids(n, 61, 1), targets = random_ids(n, 61, 2);
                    const std::vector<float> first = gradients(t, ids, targets, 1.0f / float(n), true);
                    CHECK(first == gradients(t, ids, targets, 1.0f / float(n), true));
                    const std::vector<double> before = t.all_logits();
                    for (int64_t changed : {299, 257, 255, 129, 63, 1}) {
                        if (changed >= n) continue;
                        ids.set(changed, double((int64_t(ids.at(changed)) + 1) % 61));
                        t.model.forward(t.ctx, ids);
                        const std::vector<double> after = t.all_logits();
                        CHECK(std::equal(before.begin(), before.begin() + changed * 61, after.begin()));
                        CHECK(!std::equal(before.begin() + changed * 61, before.begin() + (changed + 1) * 61, after.begin() + changed * 61));
                    }
                }
    }

    TEST_CASE("the same micro-batch twice gives the same bits") {
        for (const Device& device : test_devices())
            for (const Variant& v : variants) {
                INFO(on(device), ", ", name_of(v));
                TinyModel a(tiny_config(v.family, v.overrides), {.batch = 2, .sequence = 13, .training = true}, device);
                TinyModel b(tiny_config(v.family, v.overrides), {.batch = 2, .sequence = 13, .training = true}, device);
                Owned ids = random_ids(26, 61, 1), targets = random_ids(26, 61, 2);
                const std::vector<float> first = gradients(a, ids, targets, 1.0f / 26, true);
                gradients(a, ids, targets, 1.0f / 26, true);
                CHECK(first == gradients(a, ids, targets, 1.0f / 26, true));
                CHECK(first == gradients(b, ids, targets, 1.0f / 26, true));
            }
    }

    TEST_CASE("gradients against central differences of the loss, every parameter class") {
        for (const Device& device : test_devices())
            for (const Variant& v : {variants[0], variants[1], variants[5], variants[6]}) {
                if (in_harness(device) && v.overrides.empty()) continue;  // what the other two lack has golden gradients
                TinyModel t(tiny_config(v.family, v.overrides), {.batch = 2, .sequence = 13, .training = true}, device);
                Owned ids = random_ids(26, 61, 1), targets = random_ids(26, 61, 2);
                const std::vector<float> g = gradients(t, ids, targets, 1.0f / 26, true);
                const auto loss = [&] {
                    t.model.forward(t.ctx, ids);
                    t.model.loss(t.ctx, t.losses, targets);
                    double sum = 0;
                    for (float loss : floats_of(t.ctx.device, t.losses)) sum += loss;
                    return sum / 26;
                };
                for (const Parameter& p : t.table.all()) {
                    if (p.layer > 0) continue;
                    INFO(on(device), ", ", name_of(v), " ", p.name);
                    // Along the gradient itself the slope is the gradient's norm; f32 resolves it to about 1e-3.
                    double squares = 0;
                    for (int64_t i = 0; i < p.count; i++) squares += double(g[size_t(p.offset + i)]) * g[size_t(p.offset + i)];
                    const double norm = std::sqrt(squares), step = 2e-3;
                    const Tensor w = Parameters::slice(t.parameters.master, p);
                    const std::vector<float> saved = floats_of(device, w);
                    const auto at = [&](double distance) {
                        std::vector<float> moved = saved;
                        for (size_t i = 0; i < moved.size(); i++) moved[i] += float(distance * g[size_t(p.offset) + i] / norm);
                        write_floats(device, w, moved);
                        return loss();
                    };
                    const double slope = (at(step) - at(-step)) / (2 * step);
                    write_floats(device, w, saved);
                    CHECK(slope == doctest::Approx(norm).epsilon(0.02));
                }
            }
    }

    TEST_CASE("cached logits equal those of a full forward, prompt in chunks and token by token") {
        for (const Device& device : test_devices())
            for (const Variant& v : variants) {
                INFO(on(device), ", ", name_of(v));
                const int64_t n = 40;
                const std::vector<std::string> longer = [&] {
                    std::vector<std::string> o = v.overrides;
                    o.push_back("model.context=40");
                    return o;
                }();
                TinyModel full(tiny_config(v.family, longer), {.batch = 1, .sequence = n, .training = false}, device);
                Owned ids = random_ids(n, 61, 4);
                full.model.forward(full.ctx, ids);
                const std::vector<double> want = full.all_logits();

                Arena arena(full.ctx.device, "cache");
                Generator generator(full.config.model, full.parameters, n, arena);
                arena.commit();
                generator.prepare(full.ctx);
                synchronize();
                TestContext ctx(device, generator.workspace_bytes(full.ctx));
                std::vector<int32_t> text;
                for (int64_t i = 0; i < n; i++) text.push_back(int32_t(ids.at(i)));
                for (int64_t prompt : {1, 7, 35}) {
                    std::vector<double> got;
                    generator.cached_logits(ctx, text, prompt, [&](const float* row) { got.insert(got.end(), row, row + 61); });
                    const std::vector<double> reference(want.begin() + (prompt - 1) * 61, want.end());
                    CHECK(normalised_error(got, reference) <= (full.config.precision.recipe == Recipe::fp32 ? 1e-5 : 0.03));
                }
            }
    }

    TEST_CASE("the loss and gradient of a batch do not depend on how it is cut, nor on untrained positions (A10)") {
        for (const Device& device : test_devices())
            for (const char* family : {"bloom", "gopher"}) {
                INFO(on(device), ", ", std::string(family));
                TinyModel whole(tiny_config(family), {.batch = 4, .sequence = 13, .training = true}, device);
                TinyModel half(tiny_config(family), {.batch = 2, .sequence = 13, .training = true}, device);
                Owned ids = random_ids(52, 61, 1), targets = random_ids(52, 61, 2);
                for (int64_t i : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 20}) targets.set(i, -1);  // 14 of 52 are not trained
                const float scale = 1.0f / 38;
                const std::vector<double> want = widen(gradients(whole, ids, targets, scale, true));
                const std::vector<float> whole_losses = floats_of(device, whole.losses);
                std::vector<float> got, losses;
                for (int64_t part = 0; part < 2; part++) {
                    const auto rows = [&](Tensor t) { return t.reshaped({52, 1}).row_range(26 * part, 26).reshaped({26}); };
                    got = gradients(half, rows(ids), rows(targets), scale, part == 0);
                    for (float loss : floats_of(device, half.losses)) losses.push_back(loss);
                }
                CHECK(normalised_error(widen(got), want) <= 1e-5);
                CHECK(normalised_error(widen(losses), widen(whole_losses)) <= 1e-6);
                CHECK(losses[20] == 0);
            }
    }

    TEST_CASE("attention reset at documents: each document's logits are those it has alone; gradients are the sum of theirs") {
        struct Case {
            const char* family;
            std::vector<std::string> overrides;
            bool positions;
        };
        const Case cases[] = {{"bloom", {}, false}, {"gopher", {}, false}, {"gopher", {"precision.recipe=mixed"}, false},
                              {"bloom", {"model.position=learned"}, true}, {"gopher", {"model.position=sinusoidal"}, true}};
        // Two sequences of 13 with documents of 5 and 8, and of 1, 2 and 10 tokens; no document of the second crosses into the first.
        const std::vector<RowRange> documents = {{0, 5}, {5, 8}, {13, 1}, {14, 2}, {16, 10}};
        for (const Device& device : test_devices())
            for (const Case& c : cases) {
                INFO(on(device), ", ", c.family, " ", c.overrides.empty() ? "" : c.overrides[0]);
                const Config config = tiny_config(c.family, c.overrides);
                TinyModel packed(config, {.batch = 2, .sequence = 13, .training = true, .documents = true}, device);
                Owned ids = random_ids(26, 61, 1), targets = random_ids(26, 61, 2);
                packed.model.set_documents(documents, true, c.positions);
                packed.model.zero_gradients(packed.ctx);
                packed.model.forward(packed.ctx, ids);
                const std::vector<double> logits = packed.all_logits();
                packed.model.loss_backward(packed.ctx, packed.losses, targets, 0.1f, true);
                packed.model.backward(packed.ctx, ids, true);
                const std::vector<double> gradient = widen(floats_of(device, packed.parameters.grad));
                std::vector<double> sum(gradient.size());
                for (RowRange rows : documents) {
                    TinyModel alone(config, {.batch = 1, .sequence = rows.count, .training = true}, device);
                    Owned some(Dtype::i32, {rows.count}), next(Dtype::i32, {rows.count});
                    for (int64_t i = 0; i < rows.count; i++) some.set(i, ids.at(rows.first + i)), next.set(i, targets.at(rows.first + i));
                    const std::vector<float> part = gradients_and_logits(alone, some, next, 0.1f, [&](const std::vector<double>& own) {
                        const std::vector<double> there(logits.begin() + rows.first * 61, logits.begin() + (rows.first + rows.count) * 61);
                        CHECK(normalised_error(there, own) < (config.precision.recipe == Recipe::fp32 ? 1e-6 : 1e-2));
                    });
                    for (size_t i = 0; i < sum.size(); i++) sum[i] += part[i];
                }
                CHECK(normalised_error(gradient, sum) < (config.precision.recipe == Recipe::fp32 ? 1e-5 : 2e-2));
                // Without documents it is another result.
                packed.model.set_documents({}, false, false);
                packed.model.forward(packed.ctx, ids);
                CHECK(normalised_error(packed.all_logits(), logits) > 1e-2);
            }
    }

    TEST_CASE("zero weights give the loss of a uniform guess, ln V") {
        for (const Device& device : test_devices()) {
            TinyModel t(tiny_config("bloom", {"model.vocab=50257", "model.hidden=12"}), {.batch = 1, .sequence = 13, .training = true}, device);
            device.elementwise.fill(t.ctx, t.parameters.master, 0);
            Owned ids = random_ids(13, 50257, 1), targets = random_ids(13, 50257, 2);
            t.model.forward(t.ctx, ids);
            t.model.loss(t.ctx, t.losses, targets);
            for (float loss : floats_of(device, t.losses)) CHECK(loss == doctest::Approx(10.824905).epsilon(1e-6));
        }
    }

    TEST_CASE("a large vocabulary is walked in chunks of rows with the same result as in one piece") {
        // 400 rows of 130,000 logits are more than one chunk (64 MiB of f32, or 256 rows). In the harness that would take minutes.
        const std::vector<std::string> overrides{"model.vocab=130000", "model.hidden=12", "model.context=400", "model.layers=1"};
        for (const Device& device : test_devices()) {
            if (in_harness(device)) continue;
            TinyModel t(tiny_config("bloom", overrides), {.batch = 1, .sequence = 400, .training = true}, device);
            CHECK(t.model.head_rows() == 208);
            Owned ids = random_ids(400, 130000, 1), targets = random_ids(400, 130000, 2);
            gradients(t, ids, targets, 1.0f / 400, true);
            Owned logits(Dtype::f32, {400, 130000});
            t.model.logits(t.ctx, logits, 0);
            synchronize();
            const std::vector<float> losses = floats_of(device, t.losses);
            for (int64_t n : {0, 99, 207, 208, 399}) {
                const float* row = logits.t.as<float>() + n * 130000;
                double sum = 0;
                for (int64_t k = 0; k < 130000; k++) sum += std::exp(double(row[k]));
                CHECK(losses[size_t(n)] == doctest::Approx(std::log(sum) - row[int64_t(targets.at(n))]).epsilon(1e-5));
            }
        }
    }
}

TEST_SUITE("generate") {
    TEST_CASE("sampling: greedy, top-k, top-p and temperature draw from the right distribution") {
        const float logits[] = {1.0f, 3.0f, 2.0f, 3.0f, -50.0f};
        std::vector<int32_t> order;
        CHECK(sample_token(logits, 5, {.temperature = 0}, 0, order) == 1);
        const auto shares = [&](const Sampling& s) {
            std::vector<double> share(5);
            for (uint64_t i = 0; i < 20000; i++) share[size_t(sample_token(logits, 5, s, i, order))] += 1.0 / 20000;
            return share;
        };
        const double total = std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0);
        std::vector<double> share = shares({.seed = 1});
        CHECK(share[1] == doctest::Approx(std::exp(3.0) / total).epsilon(0.04));
        CHECK(share[0] == doctest::Approx(std::exp(1.0) / total).epsilon(0.1));
        CHECK(share[4] == 0);
        share = shares({.top_k = 2, .seed = 2});
        CHECK(share[1] == doctest::Approx(0.5).epsilon(0.04));
        CHECK(share[1] + share[3] == doctest::Approx(1));
        share = shares({.top_p = 0.5, .seed = 3});  // the first two hold 0.79, the first alone 0.40
        CHECK(share[1] + share[3] == doctest::Approx(1));
        share = shares({.top_p = 0.3, .seed = 3});
        CHECK(share[1] == doctest::Approx(1));
        share = shares({.temperature = 0.5, .seed = 4});
        CHECK(share[2] / share[1] == doctest::Approx(std::exp(-2.0)).epsilon(0.1));
        CHECK(sample_token(logits, 5, {.seed = 5}, 7, order) == sample_token(logits, 5, {.seed = 5}, 7, order));
    }
    TEST_CASE("learned positions end where the table ends") {
        const Config c = tiny_config("bloom", {"model.position=learned"});
        TinyModel t(c, {.batch = 1, .sequence = 13, .training = false});
        Arena arena(t.ctx.device, "cache");
        CHECK_THROWS_AS(Generator(t.config.model, t.parameters, 14, arena), InputError);
    }
}
