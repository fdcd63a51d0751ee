// Losses at several context lengths: the training run's own validation, and a loss put together token by token from generation's logits.
#include "../model/evaluate.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "training_run.h"

using namespace clover;
using namespace clover::test;

namespace {

/// A run of a few steps, and what it said of its validation set at the end.
struct Trained {
    TemporaryFolder folder;
    CheckpointInfo checkpoint;
    ValidReport valid;
    std::string data;

    explicit Trained(const std::string& family, const std::vector<std::string>& overrides = {}) {
        const Config c = run_config(folder, family, overrides);
        Trainer t(c, find_device("cpu"), open_training_data(c));
        run_steps(t, 8);
        valid = t.evaluate().at(0);
        checkpoint = read_checkpoint(t.save(folder / "checkpoints"));
        data = folder / "corpus.jsonl";
    }
    EvalReport evaluate(EvalOptions o) const {
        o.data = data;
        return evaluate_lengths(checkpoint, find_device("cpu"), o);
    }
};

/// Loss of what follows tokens [first, first + n) of a text, one for each of them, by a forward pass of the generator.
std::vector<double> generator_losses(const CheckpointInfo& checkpoint, const std::vector<int32_t>& stream, int64_t first, int64_t n) {
    LoadedModel model(checkpoint, find_device("cpu"), n);
    std::vector<double> losses;
    model.generator().cached_logits(model.context(), {stream.begin() + first, stream.begin() + first + n}, 1, [&](const float* logits) {
        double sum = 0;
        for (int64_t v = 0; v < checkpoint.config.model.vocab; v++) sum += std::exp(double(logits[v]));
        losses.push_back(std::log(sum) - double(logits[stream[size_t(first) + losses.size() + 1]]));
    });
    return losses;
}

std::vector<int32_t> stream_of(const Trained& run) {
    const TrainingData data = open_evaluation_data(run.checkpoint.config, run.checkpoint.tokenizer_spec, run.data);
    std::vector<int32_t> ids(520), targets(520);
    PackedWindows(*data.valid[0].data, 520).read(0, ids.data(), targets.data());
    ids.push_back(targets.back());
    return ids;
}

void check_equal(const WindowedLoss& a, const WindowedLoss& b) {
    CHECK(a.loss == b.loss);
    CHECK(a.tokens == b.tokens);
    CHECK(a.bytes == b.bytes);
    CHECK(a.bits_per_byte == b.bits_per_byte);
}

}  // namespace

TEST_SUITE("evaluate") {
    TEST_CASE("at the trained length: the validation of the run that made the checkpoint, to the bit") {
        for (const char* family : {"bloom", "gopher"})
            for (const char* option : {"model.norm_eps=1e-5", "model.position=\"learned\"", "model.position=\"sinusoidal\"", "precision.recipe=\"bf16-master\"",
                                       "precision.recipe=\"bf16-sr\"", "data.reset_attention=true", "data.train_after_eod=false"}) {
                const Trained run(family, {option});
                const WindowedLoss w = run.evaluate({}).lengths.at(0).apart.value();
                INFO(std::string(family), " ", std::string(option));
                CHECK(w.loss == run.valid.loss);
                CHECK(w.bits_per_byte == run.valid.bits_per_byte);
                CHECK(w.tokens == run.valid.tokens);
                CHECK(w.bytes == run.valid.bytes);
                CHECK(w.perplexity == doctest::Approx(std::exp(run.valid.loss)));
            }
    }

    TEST_CASE("sliding by 1, within and beyond the trained length: every token with all of its context, as generation sees it") {
        for (const char* family : {"bloom", "gopher"})
            for (const char* position : {"alibi", "relative", "sinusoidal"})
                for (int64_t n : {5, 13, 29}) {
                    const Trained run(family, {std::string("model.position=\"") + position + "\""});
                    const std::vector<int32_t> stream = stream_of(run);
                    const int64_t tokens = 40;
                    double nats = 0;
                    for (double loss : generator_losses(run.checkpoint, stream, 0, n)) nats += loss;
                    for (int64_t i = 1; i + n <= tokens; i++) nats += generator_losses(run.checkpoint, stream, i, n).back();
                    const EvalReport r = run.evaluate({.data = "", .contexts = {n}, .stride = 1, .tokens = tokens});
                    INFO(std::string(family), " ", std::string(position), " ", n);
                    CHECK(r.lengths[0].sliding.value().tokens == tokens);
                    CHECK(r.lengths[0].sliding.value().loss == doctest::Approx(nats / double(tokens)).epsilon(1e-5));
                }
    }

    TEST_CASE("sliding by the length of the window is not sliding") {
        const Trained run("bloom");
        const LengthReport l = run.evaluate({.data = "", .contexts = {10}, .stride = 10}).lengths.at(0);
        check_equal(l.apart.value(), l.sliding.value());
    }

    TEST_CASE("every length predicts the same tokens, however they are cut; the number of windows at a time changes nothing") {
        const Trained run("gopher");
        const EvalReport r = run.evaluate({.data = "", .contexts = {13, 26, 52, 104}, .stride = 5, .tokens = 203});
        REQUIRE(r.lengths.size() == 4);
        for (const LengthReport& l : r.lengths)
            for (const WindowedLoss& w : {l.apart.value(), l.sliding.value()}) {
                CHECK(w.tokens == 203);
                // Three documents of 65, 64 and 64 bytes with an end each are 196 tokens, all but the first byte predicted, then 8 more bytes.
                CHECK(w.bytes == 200);
            }
        CHECK(run.evaluate({}).lengths[0].apart->tokens == 520);
        const EvalReport single = run.evaluate({.data = "", .contexts = {26}, .stride = 5, .tokens = 203, .micro_batch = 1});
        CHECK(single.lengths[0].apart->loss == doctest::Approx(r.lengths[1].apart->loss).epsilon(1e-6));
        CHECK(single.lengths[0].sliding->loss == doctest::Approx(r.lengths[1].sliding->loss).epsilon(1e-6));
    }

    TEST_CASE("losses by position: buckets of powers of two whose mean is the loss") {
        const Trained run("bloom");
        const LengthReport l = run.evaluate({.data = "", .contexts = {10}, .stride = 4, .tokens = 30}).lengths.at(0);
        using Row = std::array<int64_t, 3>;
        const auto rows = [](const WindowedLoss& w) {
            std::vector<Row> rows;
            double nats = 0;
            for (const PositionLoss& p : w.positions) rows.push_back({p.from, p.to, p.tokens}), nats += p.loss * double(p.tokens);
            CHECK(nats / double(w.tokens) == doctest::Approx(w.loss).epsilon(1e-12));
            return rows;
        };
        // Three windows of 10; sliding, one of 10 and five that score their positions 7 to 10.
        CHECK(rows(l.apart.value()) == std::vector<Row>{{1, 1, 3}, {2, 2, 3}, {3, 4, 6}, {5, 8, 12}, {9, 10, 6}});
        CHECK(rows(l.sliding.value()) == std::vector<Row>{{1, 1, 1}, {2, 2, 1}, {3, 4, 2}, {5, 8, 14}, {9, 10, 12}});
        // The loss after one token alone, of each window's first prediction.
        const std::vector<int32_t> stream = stream_of(run);
        double first = 0;
        for (int64_t i : {0, 10, 20}) first += generator_losses(run.checkpoint, stream, i, 1)[0] / 3;
        CHECK(l.apart->positions[0].loss == doctest::Approx(first).epsilon(1e-5));
    }

    TEST_CASE("learned positions refuse a longer context alone; JSON says null") {
        const Trained run("bloom", {"model.position=\"learned\""});
        const EvalReport r = run.evaluate({.data = "", .contexts = {26, 13, 6}, .stride = 3});
        CHECK(r.lengths[0].refused == "learned positions end at 13");
        CHECK(!r.lengths[0].apart);
        CHECK(!r.lengths[0].sliding);
        CHECK(r.lengths[1].apart->loss == run.valid.loss);
        CHECK(r.lengths[2].apart->tokens == 520);
        const nlohmann::json j = nlohmann::json::parse(to_json(r, true));
        CHECK(j["lengths"][0]["apart"].is_null());
        CHECK(j["lengths"][0]["sliding"].is_null());
        CHECK(j["lengths"][0]["refused"] == "learned positions end at 13");
        CHECK(j["lengths"][1]["apart"]["loss"] == run.valid.loss);
        CHECK(j["lengths"][1]["apart"]["positions"].size() == 5);
        CHECK(j["stride"] == 3);
        CHECK(to_table(r, false).find("learned positions end at 13") != std::string::npos);
    }

    TEST_CASE("lengths and strides that cannot be are refused") {
        const Trained run("bloom");
        CHECK_THROWS_WITH_AS(run.evaluate({.data = "", .contexts = {20, 8}, .stride = 9}), doctest::Contains("--stride 9 is longer than --context 8"), InputError);
        CHECK_THROWS_WITH_AS(run.evaluate({.data = "", .contexts = {521}}), doctest::Contains("has 520 tokens to predict"), InputError);
        CHECK_THROWS_WITH_AS(run.evaluate({.data = "", .contexts = {20}, .tokens = 19}), doctest::Contains("19 tokens to predict with --tokens"), InputError);
        CHECK_THROWS_WITH_AS(evaluate_lengths(run.checkpoint, find_device("cpu"), {.data = run.folder / "nowhere.txt"}),
                             doctest::Contains("nowhere.txt"), InputError);
    }
}
