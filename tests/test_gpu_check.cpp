// The program behind `make gpu-check` (tests/gpu/gpu_check.cpp), in the harness: its report is whole, also when time is short and when the
// suite failed. `make test` names the program in the environment variable GPU_CHECK.
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support.h"
#include "temporary_folder.h"

using namespace clover::test;
using nlohmann::json;

namespace {

struct Report {
    int code;
    json data;
    std::string markdown;
};

Report gpu_check(const TemporaryFolder& folder, const std::string& options) {
    const std::string program = std::filesystem::canonical(std::getenv("GPU_CHECK"));
    const int status = std::system((program + " --small --out " + (folder / "report") + " " + options + " >" + (folder / "out") + " 2>&1").c_str());
    const std::string data = folder.contents("report.json");
    return {WEXITSTATUS(status), data.empty() ? json{} : json::parse(data), folder.contents("report.md")};
}

bool contains(const std::string& s, const std::string& part) { return s.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE("gpu check") {
    TEST_CASE("the report names the GPU, the probes' answers, the speed of steps and operations, and what there was no time for") {
        if (!std::getenv("GPU_CHECK")) {
            MESSAGE("not checked: GPU_CHECK is not set");
            return;
        }
        TemporaryFolder folder;
        const Report r = gpu_check(folder, "--seconds 6 --command 'make this'");
        INFO(folder.contents("out"));
        REQUIRE(r.code == 0);
        CHECK(contains(r.data["gpu"], "SIMT harness"));
        CHECK(r.data["command"] == "make this");
        CHECK(r.data["datasheet_peak"].is_null());
        CHECK(r.data["probes"].size() > 20);
        CHECK(r.data["training"].size() >= 1);
        CHECK(r.data["training"][0]["tokens_per_s"] > 0.0);
        CHECK(r.data.value("operations", json::array()).size() + r.data.value("skipped", json::array()).size() > 40);
        CHECK_FALSE(r.data.contains("errors"));
        CHECK(contains(r.markdown, "| PASS | fragments of mma lie where the table says |"));
        CHECK(contains(r.markdown, "| configs/bench-124m.toml, context 16, micro-batch 1 | bf16-master |"));
        CHECK(contains(r.markdown, "`make this`"));
    }
    TEST_CASE("a failed suite is in the report and in the exit code; an unknown option is refused") {
        if (!std::getenv("GPU_CHECK")) return;
        TemporaryFolder folder;
        folder.file("suite.txt", "x\nTEST CASE:  the one that broke\n\n41 passed, 1 failed\n");
        const Report r = gpu_check(folder, "--seconds 0 --suite " + (folder / "suite.txt"));
        CHECK(r.code == 1);
        CHECK(r.data["suite"]["result"] == "41 passed, 1 failed");
        CHECK(r.data["suite"]["failed"] == json{"the one that broke"});
        CHECK(r.data["skipped"].size() > 40);
        CHECK(contains(r.markdown, "failed: the one that broke"));
        CHECK(gpu_check(folder, "--speed 9").code == 2);
    }
}
