// log.jsonl: means over several steps, what a step changed, spikes; and that a resumed log reads as if the run had never stopped.
#include "../model/run_log.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "training_run.h"

using namespace clover;
using namespace clover::test;
using nlohmann::json;

namespace {

StepReport report(int64_t step, double loss, double grad_norm = 1) {
    return {.progress = {step, 2 * step, 20 * step}, .loss = loss, .bits_per_byte = loss / 2, .grad_norm = grad_norm, .lr = 0.1 / double(step),
            .seconds = 0.5, .tokens_per_s = 40, .flops = 1e9};
}

Config logged(int64_t record_every) { return tiny_config("bloom", {"train.steps=100", "train.log_every=1000", "train.record_every=" + std::to_string(record_every)}); }

std::vector<json> lines(const TemporaryFolder& folder) {
    std::vector<json> all;
    std::istringstream in(folder.contents("run/log.jsonl"));
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
}

TEST_SUITE("run log") {
    TEST_CASE("a line holds the means of its steps; a checkpoint and the end close one") {
        TemporaryFolder folder;
        {
            RunLog log(folder / "run", logged(4), 0, 1e10);
            for (int64_t step = 1; step <= 6; step++) log.step(report(step, double(step)));
            log.sync();
            log.sync();  // nothing new
            for (int64_t step = 7; step <= 8; step++) log.step(report(step, double(step)));
        }
        const std::vector<json> all = lines(folder);
        REQUIRE(all.size() == 3);
        const double means[] = {2.5, 5.5, 7.5};
        const int64_t steps[] = {4, 2, 2}, last[] = {4, 6, 8};
        for (size_t i = 0; i < 3; i++) {
            CHECK(all[i]["loss"] == means[i]);
            CHECK(all[i]["bits_per_byte"] == means[i] / 2);
            CHECK(all[i]["steps"] == steps[i]);
            CHECK(all[i]["step"] == last[i]);
            CHECK(all[i]["samples"] == 2 * last[i]);
            CHECK(all[i]["lr"] == 0.1 / double(last[i]));
            CHECK(all[i]["seconds"] == 0.5);
            CHECK(all[i]["tokens_per_s"] == 40);
            CHECK(all[i]["utilisation"] == doctest::Approx(0.2));
        }
    }
    TEST_CASE("with a line a step there are no means to tell") {
        TemporaryFolder folder;
        RunLog(folder / "run", logged(1), 0, 1e10).step(report(1, 3));
        REQUIRE(lines(folder).size() == 1);
        CHECK(!lines(folder)[0].contains("steps"));
    }
    TEST_CASE("a spike is told once it is one, as long as it lasts, and the same after a resume") {
        const auto loss = [](int64_t step) { return step >= 80 && step < 83 ? 5.0 : 2 + 0.01 * double(step % 7); };
        const auto run = [&](const TemporaryFolder& folder, int64_t stop) {
            {
                RunLog log(folder / "run", logged(1), 0, 1e10);
                for (int64_t step = 1; step <= stop + 3; step++) log.step(report(step, loss(step)));
            }
            RunLog log(folder / "run", logged(1), stop, 1e10);
            for (int64_t step = stop + 1; step <= 100; step++) log.step(report(step, loss(step), step == 90 ? 960 : 0.24));
            return folder.contents("run/log.jsonl");
        };
        TemporaryFolder whole, stopped;
        const std::string want = run(whole, 70);
        std::vector<int64_t> at;
        for (const json& line : lines(whole))
            if (line.contains("spike")) {
                at.push_back(line["step"]);
                CHECK(line["spike"] == (line["step"] == 90 ? "grad_norm" : "loss"));
            }
        CHECK(at == std::vector<int64_t>{80, 81, 82, 90});
        // The gradient norms before the stop differ, so only the losses' spikes are the same.
        run(stopped, 81);
        std::vector<json> losses, again;
        for (const json& line : lines(whole))
            if (line.value("spike", "") == "loss") losses.push_back(line);
        for (const json& line : lines(stopped))
            if (line.value("spike", "") == "loss") again.push_back(line);
        CHECK(losses == again);
    }
    TEST_CASE("what a step changed: every stats_every steps, by class and layer") {
        for (const char* recipe : {"fp32", "bf16"}) {
            TemporaryFolder folder;
            const Config c = run_config(folder, "gopher", {std::string("precision.recipe=") + recipe, "optimizer.lr=1e-5", "optimizer.min_lr=1e-5", "train.stats_every=3", "train.log_every=1000"});
            {
                Trainer trainer(c, find_device("cpu"), open_training_data(c));
                RunLog log(folder / "run", c, 0, 1e10);
                for (int i = 0; i < 7; i++) log.step(trainer.step());
            }
            const std::vector<json> all = lines(folder);
            REQUIRE(all.size() == 7);
            for (size_t i = 0; i < 7; i++) CHECK(all[i].contains("stale") == (i == 2 || i == 5));
            const json &stale = all[5]["stale"], &update = all[5]["update"];
            CHECK(stale["layers"].size() == 3);
            CHECK(stale["classes"].size() == 4);
            for (const char* group : {"embedding", "gains", "biases", "matrices"}) {
                INFO(recipe, " ", group, " ", stale["classes"][group].dump());
                const double fraction = stale["classes"][group];
                // Updates of 1e-5 are below half of bf16's distance around the numbers of this model, all but those near 0.
                const bool moves = std::string(recipe) == "fp32" || std::string(group) == "biases";
                CHECK((moves ? fraction < 0.6 : fraction > 0.9));
                CHECK(update["classes"][group] >= 0);
            }
            if (std::string(recipe) == "fp32") CHECK(double(update["classes"]["gains"]) == doctest::Approx(1e-5).epsilon(0.3));
        }
    }
}

}  // namespace
