// Reading runs back: series from the log's lines, values of the config as printed, and one line for whatever is wrong.
#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "../kernels/error.h"
#include "../report/run_data.h"
#include "temporary_folder.h"

using namespace clover;
using test::TemporaryFolder;

namespace {

RunData log_of(const std::string& text) {
    RunData run;
    read_log(text, "log.jsonl", run);
    return run;
}

std::string refusal(const std::string& log) {
    try {
        log_of(log);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

bool starts_with(const std::string& s, const std::string& start) { return s.rfind(start, 0) == 0; }

void write_run(const TemporaryFolder& folder, const std::string& name, const std::string& log) {
    std::filesystem::create_directories(folder / name);
    folder.file(name + "/config.toml", "[train]\nsteps = 3\n");
    folder.file(name + "/log.jsonl", log);
}

}  // namespace

TEST_SUITE("run data") {
    TEST_CASE("numbers of a log become series") {
        const RunData run = log_of(
            R"({"step":1,"samples":4,"loss":5.5,"lr":1e-3,"skipped":false,"stale":{"classes":{"embedding":0.5,"matrices":0.25},"layers":[0.125,0.75]}})" "\n"
            R"({"step":1,"tokens":64,"valid":{"loss":2.0,"bits_per_byte":3.0,"sets":{"en":{"loss":1.5,"bits_per_byte":2.5}}},"drawn":{"en":64}})" "\n"
            R"({"step":1,"prompt":"a","sample":"ab"})" "\n"
            R"({"step":2,"samples":8,"loss":4.5,"lr":2e-3,"skipped":true})" "\n"
            R"({"step":2,"spike":"grad_norm","value":7.0,"mean":1.0,"sd":0.5})" "\n");
        REQUIRE(run.points("loss").size() == 2);
        CHECK(run.points("loss")[1].step == 2);
        CHECK(run.points("loss")[1].value == 4.5);
        CHECK(run.points("lr")[0].value == 1e-3);
        CHECK(run.points("skipped")[0].value == 0);
        CHECK(run.points("skipped")[1].value == 1);
        CHECK(run.points("stale.embedding")[0].value == 0.5);
        CHECK(run.points("stale.matrices")[0].value == 0.25);
        CHECK(run.points("stale.layer.0")[0].value == 0.125);
        CHECK(run.points("stale.layer.1")[0].value == 0.75);
        CHECK(run.points("valid.loss")[0].value == 2.0);
        CHECK(run.points("valid.bits_per_byte")[0].value == 3.0);
        CHECK(run.points("valid.en.bits_per_byte")[0].value == 2.5);
        CHECK(run.points("drawn.en")[0].value == 64);
        CHECK(run.points("tokens").empty());
        REQUIRE(run.spikes.size() == 1);
        CHECK(run.spikes[0].step == 2);
        CHECK(run.spikes[0].series == "grad_norm");
        CHECK(run.spikes[0].value == 7);
        CHECK(run.spikes[0].sd == 0.5);
    }

    TEST_CASE("null is a number that is not finite") {
        const RunData run = log_of("{\"step\":1,\"loss\":null}\n");
        REQUIRE(run.points("loss").size() == 1);
        CHECK(std::isnan(run.points("loss")[0].value));
    }

    TEST_CASE("a last line that is being written is passed over, a damaged one in the middle is named") {
        CHECK(log_of("{\"step\":1,\"loss\":2}\n{\"step\":2,\"lo").points("loss").size() == 1);
        CHECK(log_of("{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}").points("loss").size() == 2);
        CHECK(log_of("").series.empty());
        CHECK(starts_with(refusal("{\"step\":1,\"loss\":2}\n{\"step\":2,\"lo\n{\"step\":3,\"loss\":2}\n"), "log.jsonl:2: not a JSON object: `{\"step\":2,\"lo`"));
        CHECK(starts_with(refusal("{\"step\":1}\n[1]\n"), "log.jsonl:2: not a JSON object"));
        CHECK(starts_with(refusal("{\"loss\":1}\n"), "log.jsonl:1: has no \"step\""));
        CHECK(starts_with(refusal("{\"step\":-1}\n"), "log.jsonl:1: has no \"step\""));
        CHECK(starts_with(refusal("{\"step\":1.5}\n"), "log.jsonl:1: has no \"step\""));
        CHECK(starts_with(refusal("{\"step\":2,\"loss\":1}\n{\"step\":1,\"loss\":1}\n"), "log.jsonl:2: loss of step 1 comes after that of step 2"));
        CHECK(starts_with(refusal("{\"step\":1,\"spike\":3}\n"), "log.jsonl:1: \"spike\""));
    }

    TEST_CASE("hostile logs: many series, deep nesting, bytes that are no text") {
        std::string many = "{\"step\":1";
        for (int i = 0; i < 10001; i++) many += ",\"a" + std::to_string(i) + "\":1";
        CHECK(refusal(many + "}\n").find("different series") != std::string::npos);
        std::string deep = "{\"step\":1,\"a\":";
        for (int i = 0; i < 100000; i++) deep += "[";
        for (int i = 0; i < 100000; i++) deep += "]";
        CHECK(log_of(deep + "}\n").series.empty());
        CHECK(starts_with(refusal("\xff\xfe\n"), "log.jsonl:1: not a JSON object"));
        CHECK(refusal("{\"step\":1,\"loss\":1e999}\n").find("log.jsonl:1: ") == 0);
    }

    TEST_CASE("values of a config, as printed") {
        RunData run;
        read_config_values("[model]\nfamily = \"bloom\"\nnorm_eps = 1e-5\n\n[data]\ntrain = [\n    {path = \"a = b.txt\", name = \"a\"},\n    {path = \"c\", name = \"c\"},\n]\n"
                           "[train]\nsteps = 10\nsample_prompts = [\"x\", \"[y]\"]\n", "config.toml", run);
        CHECK(run.config.size() == 5);
        CHECK(run.config["model.family"] == "\"bloom\"");
        CHECK(run.config["model.norm_eps"] == "1e-5");
        CHECK(run.config["data.train"] == "[{path = \"a = b.txt\", name = \"a\"}, {path = \"c\", name = \"c\"},]");
        CHECK(run.config["train.steps"] == "10");
        CHECK(run.config["train.sample_prompts"] == "[\"x\", \"[y]\"]");
        CHECK_THROWS_WITH_AS(read_config_values("[model\n", "config.toml", run), doctest::Contains("config.toml:1: not TOML"), InputError);
    }

    TEST_CASE("folders that are no runs") {
        const TemporaryFolder folder;
        CHECK_THROWS_WITH_AS(read_run(folder / "none"), doctest::Contains("none: is no folder"), InputError);
        CHECK_THROWS_WITH_AS(read_run(folder / ""), doctest::Contains("config.toml: is missing"), InputError);
        folder.file("config.toml", "");
        CHECK_THROWS_WITH_AS(read_run(folder / ""), doctest::Contains("log.jsonl: is missing"), InputError);
        folder.file("log.jsonl", "x\n");
        CHECK_THROWS_WITH_AS(read_run(folder / ""), doctest::Contains("log.jsonl:1: not a JSON object"), InputError);
    }

    TEST_CASE("names tell runs apart") {
        const TemporaryFolder folder;
        for (const char* name : {"a/run", "b/run", "c"}) write_run(folder, name, "{\"step\":1,\"loss\":1}\n");
        const std::vector<RunData> runs = read_runs({folder / "a/run", folder / "b/run/", folder / "c/"});
        CHECK(runs[0].name == "a/run");
        CHECK(runs[1].name == "b/run/");
        CHECK(runs[2].name == "c/");
        CHECK(read_runs({folder / "a/run", folder / "c/"})[1].name == "c");
        CHECK_THROWS_WITH_AS(read_runs({folder / "c", folder / "c"}), doctest::Contains("is named twice"), InputError);
    }

    TEST_CASE("means of the last steps, and spreads") {
        Points points;
        for (int64_t step = 10; step <= 100; step += 10) points.push_back({step, double(step)});
        CHECK(mean_of_last(points, 0.2) == 95);    // of 90 and 100
        CHECK(mean_of_last(points, 0.25) == 90);   // after step 75
        CHECK(mean_of_last(points, 0) == 100);
        CHECK(mean_of_last(points, 1) == 55);
        CHECK(mean_of_last({{10, 1.0}, {90, 5.0}, {100, 2.0}}, 0.5) == (80 * 5.0 + 10 * 2.0) / 90);
        CHECK(mean_of_last({{0, 3.0}}, 0.5) == 3);
        CHECK(mean_of_last({{0, 3.0}, {10, 4.0}}, 1) == 4);
        CHECK(std::isnan(mean_of_last({}, 0.5)));
        CHECK(last_value(points) == 100);
        const Spread s = spread_of({2, 4, 4, 4, 5, 5, 7, 9});
        CHECK(s.n == 8);
        CHECK(s.mean == 5);
        CHECK(s.sd == doctest::Approx(2.138089935).epsilon(1e-9));
        CHECK(spread_of({3}).sd == 0);
        CHECK(std::isnan(spread_of({}).mean));
    }
}
