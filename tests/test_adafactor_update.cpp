// Training by Adafactor: what its keys do, what a checkpoint holds, and that a resumed run is the same run.
#include "../model/adafactor_update.h"

#include <algorithm>

#include "../model/checkpoint_directory.h"
#include "../model/safetensors.h"
#include "training_run.h"

using namespace clover;
using namespace clover::test;

namespace {

Config adafactor_config(const TemporaryFolder& folder, std::vector<std::string> overrides = {}) {
    overrides.insert(overrides.begin(), {"optimizer.name=\"adafactor\"", "optimizer.lr=3e-3", "optimizer.min_factored=0"});
    return run_config(folder, "bloom", overrides);
}

std::string error_of(const std::vector<std::string>& overrides) {
    try {
        tiny_config("bloom", overrides);
    } catch (const InputError& e) {
        return e.what();
    }
    return "";
}

TEST_SUITE("adafactor update") {
    TEST_CASE("a run stopped and resumed is the same run, and it learns") {
        TemporaryFolder folder;
        int place = 0;
        for (const auto& more : std::vector<std::vector<std::string>>{{}, {"optimizer.momentum=true", "optimizer.parameter_scale=true", "optimizer.lr=0.03"}, {"optimizer.min_factored=128", "precision.recipe=\"bf16-sr\""}}) {
            const Config c = adafactor_config(folder, more);
            Trainer whole(c, find_device("cpu"), open_training_data(c));
            const std::vector<Line> want = run_steps(whole, 30);
            CHECK(want.back().loss < want.front().loss - 0.3);
            const std::string checkpoints = folder / ("checkpoints-" + std::to_string(place++));
            Trainer part(c, find_device("cpu"), open_training_data(c));
            std::vector<Line> got = run_steps(part, 17);
            part.save(checkpoints);
            Trainer rest(c, find_device("cpu"), open_training_data(c));
            std::vector<std::string> warnings;
            rest.resume(read_checkpoint(newest_checkpoint(checkpoints, warnings)));
            const std::vector<Line> lines = run_steps(rest, 30);
            got.insert(got.end(), lines.begin(), lines.end());
            CHECK(got == want);
            CHECK(same_bits(rest.parameters().master, whole.parameters().master));
            CHECK(same_bits(rest.parameters().factored.state, whole.parameters().factored.state));
            CHECK(rest.parameters().m.present() == c.optimizer.momentum);
            if (c.optimizer.momentum) CHECK(same_bits(rest.parameters().m, whole.parameters().m));
        }
    }
    TEST_CASE("a checkpoint has rows and columns of factored matrices and the whole of the rest") {
        TemporaryFolder folder;
        const Config c = adafactor_config(folder, {"optimizer.min_factored=24"});
        Trainer trainer(c, find_device("cpu"), open_training_data(c));
        run_steps(trainer, 1);
        const SafetensorsFile file(trainer.save(folder / "checkpoints") + "/optimizer.safetensors");
        size_t expected = 0;
        for (const Parameter& p : trainer.table().all()) {
            INFO(p.name);
            const bool factored = p.shape.size() == 2 && std::min(p.shape[0], p.shape[1]) >= 24;
            expected += factored ? 2 : 1;
            if (factored) {
                CHECK(file.at("r." + p.name).shape == std::vector<int64_t>{p.shape[0]});
                CHECK(file.at("c." + p.name).shape == std::vector<int64_t>{p.shape[1]});
            } else {
                CHECK(file.at("v." + p.name).shape == p.shape);
            }
        }
        CHECK(file.entries().size() == expected);
        CHECK(expected > trainer.table().all().size());
    }
    TEST_CASE("the relative step takes the place of the schedule") {
        TemporaryFolder folder;
        const Config c = adafactor_config(folder, {"optimizer.relative_step=true"});
        Trainer trainer(c, find_device("cpu"), open_training_data(c));
        CHECK(trainer.step().lr == 0.01);
    }
    TEST_CASE("both devices train alike") {
        const Device* cuda = usable_cuda();
        if (!cuda) return;
        TemporaryFolder folder;
        const Config c = adafactor_config(folder, {"precision.recipe=\"fp32\"", "optimizer.momentum=true", "optimizer.parameter_scale=true"});
        Trainer cpu(c, find_device("cpu"), open_training_data(c)), other(c, *cuda, open_training_data(c));
        for (int i = 0; i < 3; i++) CHECK(other.step().loss == doctest::Approx(cpu.step().loss).epsilon(1e-5));
    }
    TEST_CASE("its keys are not for Adam, nor Adam's for it") {
        for (const char* key : {"relative_step", "parameter_scale", "momentum"})
            CHECK(error_of({"optimizer." + std::string(key) + "=true"}).find("is of adafactor, but optimizer.name = \"adamw\"") != std::string::npos);
        CHECK(error_of({"optimizer.name=\"adafactor\"", "precision.moments=\"bf16\""}).find("keeps f32") != std::string::npos);
        CHECK(error_of({"optimizer.name=\"adafactor\"", "optimizer.momentum=true"}) == "");
    }
}

}  // namespace
