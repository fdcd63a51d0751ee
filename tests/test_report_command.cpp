// `clover report`: what it writes, and what it says to mistakes.
#include <doctest/doctest.h>

#include <CLI/CLI.hpp>

#include "../kernels/error.h"
#include "../report/commands.h"
#include "report_runs.h"

using namespace clover;
using namespace clover::test;

namespace {

int report(const std::vector<std::string>& arguments) {
    CLI::App app;
    const DataCommand command = add_report_command(app);
    std::vector<std::string> backwards(arguments.rbegin(), arguments.rend());
    backwards.push_back(command.name);
    app.parse(backwards);
    return command.run();
}

}  // namespace

TEST_SUITE("report command") {
    TEST_CASE("page, CSV and SVG") {
        const TemporaryFolder folder;
        const std::string a = make_run(folder, {.name = "a"}), b = make_run(folder, {.name = "b", .recipe = "bf16", .spike = true});
        CHECK(report({a, b, "--out", folder / "r.html", "--csv", folder / "r.csv", "--svg", folder / "r.svg", "--series", "loss", "--series", "valid.en.bits_per_byte", "--smooth", "0.5", "--log"}) == 0);
        CHECK(folder.contents("r.html").find("<!doctype html>") == 0);
        CHECK(read_csv(folder.contents("r.csv")).count({"b", "loss", 400}) == 1);
        const std::string svg = folder.contents("r.svg");
        CHECK(svg.find("valid.en.bits_per_byte") != std::string::npos);
        CHECK(svg.find("<title>step 300</title>") != std::string::npos);
        CHECK(svg.find("logarithmic") != std::string::npos);
    }

    TEST_CASE("mistakes") {
        const TemporaryFolder folder;
        const std::string a = make_run(folder, {.name = "a"});
        CHECK_THROWS_WITH_AS(report({folder / "none"}), doctest::Contains("is no folder"), InputError);
        CHECK_THROWS_WITH_AS(report({folder / ""}), doctest::Contains("config.toml: is missing"), InputError);
        CHECK_THROWS_WITH_AS(report({a, "--out", folder / "r.html", "--svg", folder / "r.svg", "--series", "los"}), doctest::Contains("--series los: no run has it; "), InputError);
        CHECK(folder.contents("r.html").empty());
        CHECK_THROWS_AS(report({a, "--out", folder / "no/such/r.html"}), Error);
        CHECK_THROWS_AS(report({}), CLI::RequiredError);
    }
}
