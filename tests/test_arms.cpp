// Which runs belong together, and in what configs differ.
#include <doctest/doctest.h>

#include "../report/arms.h"

using namespace clover;

namespace {

RunData run(const std::string& name, const std::string& recipe, const std::string& seed) {
    RunData r;
    r.name = name;
    r.config = {{"precision.recipe", recipe}, {"train.seed", seed}, {"model.layers", "2"}};
    return r;
}

}  // namespace

TEST_SUITE("arms") {
    TEST_CASE("runs that differ in their seed alone are one arm") {
        const std::vector<Arm> arms = arms_of({run("fp32-seed1", "fp32", "1"), run("bf16-seed1", "bf16", "1"), run("fp32-seed2", "fp32", "2"), run("fp32-seed13", "fp32", "13")});
        REQUIRE(arms.size() == 2);
        CHECK(arms[0].name == "fp32");
        CHECK(arms[0].runs == std::vector<size_t>{0, 2, 3});
        CHECK(arms[1].name == "bf16-seed1");
    }

    TEST_CASE("names of arms") {
        CHECK(arms_of({run("a/s1", "x", "1"), run("a/s2", "x", "2")})[0].name == "a");
        CHECK(arms_of({run("big_s1", "x", "1"), run("big_s2", "x", "2")})[0].name == "big");
        CHECK(arms_of({run("one", "x", "1"), run("two", "x", "2")})[0].name == "one …");
        CHECK(arms_of({run("run1", "x", "1"), run("run12", "x", "2")})[0].name == "run1");
    }

    TEST_CASE("keys that differ, also one that only some have") {
        std::vector<RunData> runs = {run("a", "fp32", "1"), run("b", "bf16", "1")};
        CHECK(differing_keys(runs) == std::vector<std::string>{"precision.recipe"});
        runs[1].config["optimizer.lr"] = "1.0";
        CHECK(differing_keys(runs) == std::vector<std::string>{"optimizer.lr", "precision.recipe"});
        CHECK(differing_keys({run("a", "fp32", "1")}).empty());
    }
}
