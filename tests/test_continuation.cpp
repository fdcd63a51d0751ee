// What a run may change when it goes on, and runs that begin from the parameters of another.
#include "../model/continuation.h"

#include <filesystem>

#include "training_run.h"

using namespace clover;
using namespace clover::test;

namespace {

std::vector<float> floats(const Tensor& t) {
    std::vector<float> values(size_t(t.count()));
    by_dtype(t.dtype, [&]<class T>(T) { std::transform(t.as<T>(), t.as<T>() + t.count(), values.begin(), [](T x) { return to_float(x); }); });
    return values;
}

}  // namespace

TEST_SUITE("continuation") {
    TEST_CASE("--override: schedule, clipping, decay and steps may differ, nothing else; free keys always") {
        const Config had = tiny_config("bloom");
        const Config free = tiny_config("bloom", {"train.eval_every=7", "train.log_every=3", "checkpoint.every=5", "checkpoint.start=\"x\"", "data.cache=\"elsewhere\""});
        CHECK(require_continues("there", had, free, false).empty());
        const Config other = tiny_config("bloom", {"optimizer.lr=2e-2", "optimizer.min_lr=1e-4", "optimizer.start_lr=1e-5", "optimizer.warmup=4", "optimizer.decay=15",
                                                   "optimizer.schedule=\"linear-steps\"", "optimizer.clip=0.5", "optimizer.weight_decay=0.2", "train.steps=25"});
        const std::vector<Override> changed = require_continues("there", had, other, true);
        std::vector<std::string> keys;
        for (const Override& o : changed) keys.push_back(o.key);
        CHECK(keys == std::vector<std::string>{"train.steps", "optimizer.lr", "optimizer.min_lr", "optimizer.start_lr", "optimizer.warmup", "optimizer.decay",
                                               "optimizer.schedule", "optimizer.weight_decay", "optimizer.clip"});
        CHECK(changed[0].had == "20");
        CHECK(changed[0].has == "25");
        CHECK(changed[6].has == "\"linear-steps\"");
        CHECK_THROWS_WITH_AS(require_continues("there", had, other, false), doctest::Contains("with --override to change it"), InputError);
        for (const char* fixed : {"optimizer.beta2=0.9", "train.seed=6", "train.global_batch=8", "model.norm_eps=1e-6", "data.order=\"epochs\""}) {
            const Config another = tiny_config("bloom", {fixed});
            const std::string key = std::string(fixed).substr(0, std::string(fixed).find('='));
            CHECK_THROWS_WITH_AS(require_continues("there", had, another, true), doctest::Contains(("it has `" + key).c_str()), InputError);
        }
    }

    TEST_CASE("a longer run and another learning rate from a checkpoint on: the steps before are those of the old, the samples after those of the long run") {
        TemporaryFolder folder;
        const Config old = run_config(folder, "bloom", {"optimizer.schedule=\"constant\"", "data.order=\"epochs\""});
        Trainer first(old, find_device("cpu"), open_training_data(old));
        run_steps(first, 12);
        const CheckpointInfo saved = read_checkpoint(first.save(folder / "checkpoints"));
        const Config longer = run_config(folder, "bloom", {"optimizer.schedule=\"constant\"", "data.order=\"epochs\"", "train.steps=50"});
        Trainer whole(longer, find_device("cpu"), open_training_data(longer)), rest(longer, find_device("cpu"), open_training_data(longer));
        run_steps(whole, 12);
        rest.resume(saved);
        CHECK(run_steps(rest, 40) == run_steps(whole, 40));
        const Config slower = run_config(folder, "bloom", {"optimizer.schedule=\"constant\"", "data.order=\"epochs\"", "optimizer.lr=1e-3"});
        Trainer slow(slower, find_device("cpu"), open_training_data(slower));
        slow.resume(saved);
        CHECK(slow.step().lr == 1e-3);
        CHECK(run_steps(first, 13)[0].loss == doctest::Approx(run_steps(slow, 14)[0].loss).epsilon(0.5));
    }

    TEST_CASE("another number of steps whose samples would come in another order is refused") {
        TemporaryFolder folder;
        const Config old = run_config(folder, "bloom", {"train.steps=10"});  // 40 samples, one epoch
        Trainer first(old, find_device("cpu"), open_training_data(old));
        const CheckpointInfo none = read_checkpoint(first.save(folder / "checkpoints"));
        run_steps(first, 5);
        const CheckpointInfo saved = read_checkpoint(first.save(folder / "checkpoints"));
        const auto resume = [&](const char* steps, const CheckpointInfo& from) {
            const Config c = run_config(folder, "bloom", {steps});
            Trainer t(c, find_device("cpu"), open_training_data(c));
            t.resume(from);
            return run_steps(t, 8);
        };
        CHECK_THROWS_WITH_AS(resume("train.steps=30", saved), doctest::Contains("whose samples came in another order"), InputError);
        CHECK(resume("train.steps=30", none).size() == 8);  // nothing was drawn yet
        CHECK(resume("train.steps=9", saved).size() == 3);  // still one epoch
    }

    TEST_CASE("checkpoint.start: the loss of the source at step 0, a fresh optimizer") {
        for (const char* recipe : {"fp32", "bf16-master", "bf16-master-sr", "bf16-sr"}) {
            TemporaryFolder folder;
            const std::string precision = std::string("precision.recipe=\"") + recipe + "\"";
            const Config c = run_config(folder, "gopher", {precision});
            Trainer source(c, find_device("cpu"), open_training_data(c));
            run_steps(source, 10);
            const CheckpointInfo saved = read_checkpoint(source.save(folder / "checkpoints"));
            // A copy that is rounded at random is keyed by the seed.
            const std::string seed = std::string(recipe) == "bf16-master-sr" ? "train.seed=5" : "train.seed=77";
            const Config tuned = run_config(folder, "gopher", {precision, seed, "optimizer.lr=1e-3", "model.init_std=0.1", "train.steps=5"});
            Trainer t(tuned, find_device("cpu"), open_training_data(tuned));
            t.start(saved);
            INFO(std::string(recipe));
            CHECK(t.progress().step == 0);
            CHECK(t.evaluate()[0].loss == source.evaluate()[0].loss);
            for (float m : floats(t.parameters().m)) REQUIRE(m == 0);
            CHECK(t.step().progress.step == 1);
        }
    }

    TEST_CASE("checkpoint.start from another recipe: f32 parameters are rounded to nearest, bf16 ones widened") {
        for (const auto& [from, to] : {std::pair{"fp32", "bf16-sr"}, {"bf16-sr", "fp32"}}) {
            TemporaryFolder folder;
            const Config c = run_config(folder, "bloom", {std::string("precision.recipe=") + from}), tuned = run_config(folder, "bloom", {std::string("precision.recipe=") + to});
            Trainer source(c, find_device("cpu"), open_training_data(c)), t(tuned, find_device("cpu"), open_training_data(tuned));
            run_steps(source, 3);
            t.start(read_checkpoint(source.save(folder / "checkpoints")));
            for (const Parameter& p : source.table().all()) {
                const std::vector<float> had = floats(Parameters::slice(source.parameters().master, p)), has = floats(Parameters::slice(t.parameters().master, p));
                for (size_t i = 0; i < had.size(); i++) REQUIRE(has[i] == to_float(to_bf16(had[i])));
            }
            CHECK(t.step().progress.step == 1);
        }
    }

    TEST_CASE("checkpoint.start from another model or tokenizer is refused by name") {
        TemporaryFolder folder;
        const Config c = run_config(folder, "bloom");
        Trainer source(c, find_device("cpu"), open_training_data(c));
        CheckpointInfo saved = read_checkpoint(source.save(folder / "checkpoints"));
        const auto refused = [&](const std::vector<std::string>& overrides, const char* said) {
            const Config other = run_config(folder, "bloom", overrides);
            Trainer t(other, find_device("cpu"), open_training_data(other));
            CHECK_THROWS_WITH_AS(t.start(saved), doctest::Contains(said), InputError);
        };
        refused({"model.heads=4"}, "it has `model.heads = 3`, this config `4`");
        refused({"model.ffn=100"}, "model.ffn");
        refused({"model.position=\"relative\""}, "model.position");
        saved.tokenizer = "another";
        refused({}, "made with tokenizer another");
    }
}
