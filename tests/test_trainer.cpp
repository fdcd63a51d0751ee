// The trainer: learning, resuming to the bit, every recipe, memory, and nothing allocated inside a step.
#include <filesystem>
#include <limits>

#include "../model/bench.h"
#include "../model/checkpoint_directory.h"
#include "../model/run_log.h"
#include "allocation_counter.h"
#include "training_run.h"

using namespace clover;
using namespace clover::test;

TEST_SUITE("trainer") {
    TEST_CASE("the loss falls with every recipe and both families, and the recipes agree") {
        for (const char* family : {"bloom", "gopher"}) {
            double fp32 = 0;
            for (const char* recipe : {"fp32", "mixed", "bf16", "bf16-sr", "bf16-master-sr", "bf16-master", "fp16"}) {
                TemporaryFolder folder;
                const Config c = run_config(folder, family, {std::string("precision.recipe=") + recipe});
                Trainer t(c, find_device("cpu"), open_training_data(c));
                const std::vector<Line> lines = run_steps(t, 30);
                INFO(std::string(family), " ", std::string(recipe), " ", lines.front().loss, " -> ", lines.back().loss);
                CHECK(lines.back().loss < lines.front().loss - 1);
                if (fp32 == 0) fp32 = lines.back().loss;
                CHECK(lines.back().loss == doctest::Approx(fp32).epsilon(0.02));
                CHECK(t.evaluate().at(0).tokens == 520);
            }
        }
    }

    TEST_CASE("fp16: steps whose gradient overflows are skipped and lower the scale, and count in no bias correction") {
        TemporaryFolder folder;
        const Config c = run_config(folder, "bloom", {"precision.recipe=fp16", "precision.loss_scale=16777216.0", "precision.loss_scale_window=8"});
        Trainer t(c, find_device("cpu"), open_training_data(c));
        const std::vector<float> before = floats_of(find_device("cpu"), t.parameters().master);
        int64_t skipped = 0;
        double scale = 0x1p24;
        StepReport r = t.step();
        for (; r.skipped; r = t.step()) {
            skipped++;
            CHECK(floats_of(find_device("cpu"), t.parameters().master) == before);
            CHECK(r.progress.loss_scale.skipped == skipped);
            // The first overflow is let pass (hysteresis 2), each after it halves the scale.
            CHECK(r.progress.loss_scale.value == (skipped == 1 ? scale : scale / 2));
            scale = r.progress.loss_scale.value;
            REQUIRE(skipped < 20);
        }
        CHECK(skipped > 2);
        CHECK(r.progress.step == skipped + 1);
        CHECK(floats_of(find_device("cpu"), t.parameters().master) != before);
        CHECK(std::isfinite(r.grad_norm));
        // A first update of Adam's is lr large, whatever the gradient: as it would not be were the skipped steps counted.
        const std::vector<float> after = floats_of(find_device("cpu"), t.parameters().master);
        double most = 0;
        for (size_t i = 0; i < after.size(); i++) most = std::max(most, std::abs(double(after[i]) - before[i]));
        CHECK(most == doctest::Approx(r.lr).epsilon(0.3));
        // Checkpoints carry it on.
        t.save(folder / "checkpoints");
        Trainer other(c, find_device("cpu"), open_training_data(c));
        std::vector<std::string> warnings;
        other.resume(read_checkpoint(newest_checkpoint(folder / "checkpoints", warnings)));
        CHECK(other.progress().loss_scale == t.progress().loss_scale);
        CHECK(run_steps(other, 30) == run_steps(t, 30));
        CHECK(other.progress().loss_scale.value > scale);  // a clean window has passed
    }

    TEST_CASE("stopped anywhere and resumed, twice, in another process's place: the same bits (A15)") {
        const std::pair<const char*, const char*> recipes[] = {{"fp32", "f32"}, {"bf16-master", "f32"}, {"bf16-master-sr", "f32"}, {"bf16-sr", "bf16"}, {"fp16", "f32"}};
        for (const auto& [recipe, storage] : recipes)
            for (const char* family : {"bloom", "gopher"}) {
                TemporaryFolder folder;
                const std::string s = storage;
                const Config c = run_config(folder, family, {std::string("precision.recipe=") + recipe, "precision.moments=" + s, "precision.accumulate=" + s});
                Trainer whole(c, find_device("cpu"), open_training_data(c));
                const std::vector<Line> want = run_steps(whole, 30);
                for (const std::vector<int64_t>& stops : {std::vector<int64_t>{17}, {10}, {20}, {9, 23}}) {
                    std::vector<Line> got;
                    const std::string checkpoints = folder / ("checkpoints-" + std::to_string(stops[0]));
                    for (int64_t stop : stops) {
                        Trainer part(c, find_device("cpu"), open_training_data(c));
                        std::vector<std::string> warnings;
                        if (!got.empty()) part.resume(read_checkpoint(newest_checkpoint(checkpoints, warnings)));
                        const std::vector<Line> lines = run_steps(part, stop);
                        got.insert(got.end(), lines.begin(), lines.end());
                        part.save(checkpoints);
                    }
                    Trainer rest(c, find_device("cpu"), open_training_data(c));
                    std::vector<std::string> warnings;
                    rest.resume(read_checkpoint(newest_checkpoint(checkpoints, warnings)));
                    const std::vector<Line> lines = run_steps(rest, 30);
                    got.insert(got.end(), lines.begin(), lines.end());
                    INFO(std::string(family), " ", std::string(recipe), " stopped at ", stops[0]);
                    CHECK(got == want);
                    CHECK(same_bits(rest.parameters().master, whole.parameters().master));
                    if (whole.parameters().copy.present()) CHECK(same_bits(rest.parameters().copy, whole.parameters().copy));
                    CHECK(same_bits(rest.parameters().m, whole.parameters().m));
                    CHECK(same_bits(rest.parameters().v, whole.parameters().v));
                    CHECK(rest.sample("abc") == whole.sample("abc"));
                }
            }
    }

    TEST_CASE("another seed gives another run, the same seed the same") {
        TemporaryFolder folder;
        const auto losses = [&](const char* seed) {
            const Config c = run_config(folder, "bloom", {std::string("train.seed=") + seed});
            Trainer t(c, find_device("cpu"), open_training_data(c));
            return run_steps(t, 3);
        };
        CHECK(losses("1") == losses("1"));
        CHECK(losses("1") != losses("2"));
    }

    TEST_CASE("three epochs of 40 samples draw every token three times, and no epoch repeats another's order (A15)") {
        TemporaryFolder folder;
        const Config c = run_config(folder, "bloom");
        const TrainingData data = open_training_data(c);
        std::vector<std::vector<int32_t>> epochs(3);
        std::vector<int64_t> drawn(257), stored(257);
        for (int64_t i = 0; i < 120; i++) {
            std::vector<int32_t> sample(14);
            data.read(i, sample.data());
            epochs[size_t(i / 40)].insert(epochs[size_t(i / 40)].end(), sample.begin(), sample.end());
            for (size_t t = 0; t < 13; t++) drawn[size_t(sample[t])]++;
        }
        std::vector<int32_t> tokens(66);
        for (int64_t d = 0; d < data.valid[0].data->sequence_count(); d++) {
            const int64_t n = data.valid[0].data->length(d);
            data.valid[0].data->read(d, 0, n, tokens.data());
            for (int64_t t = 0; t < n; t++) stored[size_t(tokens[size_t(t)])]++;
        }
        int64_t missing = 0;
        for (size_t id = 0; id < 257; id++) {
            CHECK(drawn[id] <= 3 * stored[id]);
            missing += 3 * stored[id] - drawn[id];
        }
        CHECK(missing == 3 * 521 - 120 * 13);
        CHECK(epochs[0] != epochs[1]);
        CHECK(epochs[1] != epochs[2]);
    }

    TEST_CASE("order epochs: each of three epochs is a permutation of all 40 samples, and another one (A15)") {
        TemporaryFolder folder;
        const TrainingData data = open_training_data(run_config(folder, "bloom", {"data.order=epochs"}));
        std::vector<std::vector<std::vector<int32_t>>> epochs(3);
        for (int64_t i = 0; i < 120; i++) {
            std::vector<int32_t> sample(14);
            data.read(i, sample.data());
            epochs[size_t(i / 40)].push_back(sample);
        }
        CHECK(epochs[0] != epochs[1]);
        // The documents are shuffled for each epoch, so its samples are other windows; the tokens they are made of are all but the last of the stream.
        for (const auto& epoch : epochs) {
            std::vector<int64_t> drawn(257);
            for (const std::vector<int32_t>& sample : epoch)
                for (size_t t = 0; t < 13; t++) drawn[size_t(sample[t])]++;
            CHECK(drawn[256] >= 7);
            CHECK(drawn[256] <= 8);
        }
        CHECK(data.drawn(120).at(0).tokens == 120 * 13);
        CHECK(data.drawn(120).at(0).epochs == doctest::Approx(120.0 * 13 / 521));
    }

    TEST_CASE("documents apart, ends untrained, epoch by epoch: another run each, and resumed to the bit") {
        TemporaryFolder folder;
        const auto run = [&](const char* family, const std::vector<std::string>& overrides) {
            const Config c = run_config(folder, family, overrides);
            Trainer t(c, find_device("cpu"), open_training_data(c));
            return run_steps(t, 14);
        };
        for (const char* family : {"bloom", "gopher"}) {
            const std::vector<Line> plain = run(family, {});
            for (const char* option : {"data.reset_attention=true", "data.train_on_eod=false", "data.train_after_eod=false", "data.order=epochs"}) {
                INFO(std::string(option));
                CHECK(run(family, {option}) != plain);
            }
            const std::vector<std::string> all = {"data.reset_attention=true", "data.train_on_eod=false", "data.order=epochs"};
            const Config c = run_config(folder, family, all);
            const std::string checkpoints = folder / (std::string("checkpoints-") + family);
            Trainer begun(c, find_device("cpu"), open_training_data(c));
            std::vector<Line> lines = run_steps(begun, 11);  // in the second epoch
            begun.save(checkpoints);
            Trainer rest(c, find_device("cpu"), open_training_data(c));
            std::vector<std::string> warnings;
            rest.resume(read_checkpoint(newest_checkpoint(checkpoints, warnings)));
            for (const Line& line : run_steps(rest, 14)) lines.push_back(line);
            CHECK(lines == run(family, all));
        }
        const std::vector<std::string> learned = {"model.position=learned"};
        CHECK(run("bloom", {"model.position=learned", "data.reset_positions=true"}) != run("bloom", learned));
    }

    TEST_CASE("validation from the end of the training sets, by split or by range") {
        TemporaryFolder folder;
        const std::string path = corpus(folder);
        const auto open = [&](std::vector<std::string> overrides) {
            overrides.insert(overrides.end(), {"data.cache=\"" + (folder / "cache") + "\"", "model.vocab=257"});
            return open_training_data(tiny_config("bloom", overrides));
        };
        const std::string train = "data.train=[\"" + path + "\"]";
        const TrainingData split = open({train, "data.split=[6, 1, 1]"});
        REQUIRE(split.valid.size() == 1);
        CHECK(split.valid[0].first == 6);
        CHECK(split.valid[0].sequences == 1);
        CHECK(split.drawn(40).at(0).epochs == doctest::Approx(40.0 * 13 / (66 + 5 * 65)));
        CHECK(open({train, "data.split=[1, 0, 0]"}).valid.empty());
        const TrainingData range = open({"data.train=[{path = \"" + path + "\", range = [0, 0.75]}]", "data.valid=[{path = \"" + path + "\", range = [0.75, 1]}]"});
        CHECK(range.valid[0].first == 6);
        CHECK(range.valid[0].sequences == 2);
        // A20: two documents in three parts leave the first without any.
        const std::string two = folder.file("two.jsonl", "{\"text\": \"one document\"}\n{\"text\": \"another one\"}\n");
        CHECK_THROWS_WITH_AS(open({"data.train=[\"" + two + "\"]", "data.split=[1, 1, 1]"}),
                             doctest::Contains("data.split leaves no document of the 2 in two"), InputError);
    }

    TEST_CASE("a global batch cut into more micro-batches gives the same run") {
        TemporaryFolder folder;
        const auto run = [&](const char* micro) {
            const Config c = run_config(folder, "gopher", {std::string("train.micro_batch=") + micro});
            Trainer t(c, find_device("cpu"), open_training_data(c));
            return run_steps(t, 10);
        };
        const std::vector<Line> one = run("1"), two = run("2"), four = run("4");
        for (size_t i = 0; i < one.size(); i++) {
            CHECK(one[i].loss == doctest::Approx(four[i].loss).epsilon(1e-4));
            CHECK(two[i].loss == doctest::Approx(four[i].loss).epsilon(1e-4));
        }
    }

    TEST_CASE("validation does not change training; it averages over tokens, whatever the last batch holds (A10, A20)") {
        TemporaryFolder folder;
        const Config c = run_config(folder, "bloom", {"train.micro_batch=4"});
        Trainer a(c, find_device("cpu"), open_training_data(c)), b(c, find_device("cpu"), open_training_data(c));
        const std::vector<Line> plain = run_steps(a, 4);
        std::vector<Line> evaluated;
        while (b.progress().step < 4) {
            evaluated.push_back(line_of(b.step()));
            b.evaluate();
        }
        CHECK(plain == evaluated);
        const Config single = run_config(folder, "bloom", {"train.micro_batch=1"});
        Trainer d(single, find_device("cpu"), open_training_data(single));
        const Config wide = run_config(folder, "bloom", {"train.micro_batch=4"});
        Trainer e(wide, find_device("cpu"), open_training_data(wide));
        CHECK(d.evaluate()[0].loss == doctest::Approx(e.evaluate()[0].loss).epsilon(1e-6));
        // 513 bytes in 8 documents, 521 tokens with their ends; all but the first byte are predicted.
        CHECK(e.evaluate()[0].bytes == 512);
    }

    TEST_CASE("nothing of ours is allocated inside a step") {
        if (!counts_allocations) {
            MESSAGE("not checked: AddressSanitizer has operator new");
            return;
        }
        for (const char* family : {"bloom", "gopher"})
            for (const char* recipe : {"fp32", "bf16-master"}) {
                TemporaryFolder folder;
                const Config c = run_config(folder, family, {std::string("precision.recipe=") + recipe, "data.reset_attention=true"});
                Trainer t(c, find_device("cpu"), open_training_data(c));
                t.step();
                start_counting_allocations();
                t.step();
                const int64_t allocations = stop_counting_allocations();
                INFO(std::string(family), " ", std::string(recipe));
                CHECK(allocations == 0);
                start_counting_allocations();
                const std::vector<char> seen(100);
                CHECK(stop_counting_allocations() > 0);
            }
    }

    TEST_CASE("data that cannot be trained on is refused before the first step (A20)") {
        TemporaryFolder folder;
        const auto refuse = [&](const std::vector<std::string>& overrides, const std::string& said) {
            try {
                const Config bad = tiny_config("bloom", overrides);
                open_training_data(bad);
                FAIL("accepted, where this should have been said: " << said);
            } catch (const InputError& e) {
                INFO(std::string(e.what()));
                CHECK(std::string(e.what()).find(said) != std::string::npos);
            }
        };
        const std::string tiny = folder.file("tiny.txt", "abc"), none = folder.file("none.txt", ""), good = folder.file("good.txt", std::string(400, 'x'));
        const std::string cache = "data.cache=\"" + (folder / "cache") + "\"", vocab = "model.vocab=257";
        refuse({cache, vocab}, "data.train");
        refuse({cache, vocab, "data.train=[\"" + (folder / "missing.txt") + "\"]"}, "missing.txt");
        refuse({cache, vocab, "data.train=[\"" + tiny + "\"]"}, "tiny");
        refuse({cache, vocab, "data.train=[\"" + none + "\"]"}, "none");
        refuse({cache, "model.vocab=200", "data.train=[\"" + good + "\"]"}, "vocab");
        refuse({cache, vocab, "data.train=[\"" + good + "\"]", "data.valid=[\"" + none + "\"]"}, "none");
        // One byte is where prediction begins; what is left is the end of the document, which has no bytes to divide by.
        const std::string one = folder.file("one.txt", "a");
        refuse({cache, vocab, "data.train=[\"" + good + "\"]", "data.valid=[\"" + one + "\"]"}, "no text to predict");
    }

    TEST_CASE("a gradient that is not finite ends the run, with the parameters and moments as they were") {
        TemporaryFolder folder;
        const Config c = run_config(folder, "bloom");
        Trainer t(c, find_device("cpu"), open_training_data(c));
        run_steps(t, 2);
        t.parameters().value(Role::ffn_up_weight, 0).as<float>()[5] = std::numeric_limits<float>::infinity();
        const Tensor master = t.parameters().master, m = t.parameters().m;
        const std::vector<float> weights(master.as<float>(), master.as<float>() + master.count()), moments(m.as<float>(), m.as<float>() + m.count());
        CHECK_THROWS_WITH_AS(t.step(), doctest::Contains("step 3: the gradient norm is not finite"), Error);
        CHECK(std::equal(weights.begin(), weights.end(), master.as<float>()));
        CHECK(std::equal(moments.begin(), moments.end(), m.as<float>()));
        CHECK(t.progress().step == 2);
    }

    TEST_CASE("the benchmark's steps are of the full batch it reports, whatever the ramp-up") {
        const TrainBench b = bench_train(tiny_config("bloom", {"train.global_batch=8", "train.ramp_up=[2, 2, 1000]"}), find_device("cpu"), 1);
        CHECK(b.global_batch == 8);
        CHECK(b.tokens_per_s * b.seconds == doctest::Approx(8 * 13));
    }

    TEST_CASE("a checkpoint of another tokenizer is refused") {
        TemporaryFolder folder;
        const Config c = run_config(folder, "bloom");
        Trainer t(c, find_device("cpu"), open_training_data(c));
        CheckpointInfo info = read_checkpoint(t.save(folder / "checkpoints"));
        CHECK(info.tokenizer == "bytes");
        info.tokenizer = "another";
        CHECK_THROWS_WITH_AS(t.resume(info), doctest::Contains("made with tokenizer another"), InputError);
    }

    TEST_CASE("a checkpoint of other training data is refused: the samples would be others") {
        TemporaryFolder folder;
        const Config c = run_config(folder, "bloom");
        Trainer t(c, find_device("cpu"), open_training_data(c));
        const CheckpointInfo checkpoint = read_checkpoint(t.save(folder / "checkpoints"));
        CHECK(checkpoint.tokenizer_spec == "bytes");
        std::ofstream(folder / "corpus.jsonl", std::ios::app) << "{\"text\": \"more\"}\n";
        Trainer other(c, find_device("cpu"), open_training_data(c));
        CHECK_THROWS_WITH_AS(other.resume(checkpoint), doctest::Contains("made with other training data"), InputError);
    }

    TEST_CASE("a checkpoint whose counts do not fit together is refused") {
        TemporaryFolder folder;
        const Config c = run_config(folder, "bloom");
        const Trainer t(c, find_device("cpu"), open_training_data(c));
        Context ctx(find_device("cpu"));
        const auto read = [&](const Progress& p) { return read_checkpoint(save_checkpoint(ctx, folder / "checkpoints", c, t.parameters(), p, nullptr, "")); };
        CHECK(read({3, 12, 156}).progress.samples == 12);
        for (const Progress& wrong : {Progress{3, -12, -156}, {3, 13, 169}, {3, 12, 157}, {31, 124, 1612}})
            CHECK_THROWS_WITH_AS(read(wrong), doctest::Contains("do not fit config.toml"), InputError);
    }

    TEST_CASE("a checkpoint of another shape is refused by name") {
        TemporaryFolder folder;
        const Config c = run_config(folder, "bloom");
        Trainer t(c, find_device("cpu"), open_training_data(c));
        t.step();
        const std::string saved = t.save(folder / "checkpoints");
        const Config wider = run_config(folder, "bloom", {"model.ffn=100"});
        Trainer other(wider, find_device("cpu"), open_training_data(wider));
        try {
            other.resume(read_checkpoint(saved));
            FAIL("accepted");
        } catch (const InputError& e) {
            CHECK(std::string(e.what()).find("dense_h_to_4h.weight") != std::string::npos);
        }
    }
}
