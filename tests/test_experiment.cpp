// Experiments: experiment.toml and its mistakes, measuring and judging against figures worked out by hand, and the program running a small one that is interrupted. `make
// test` names the program in the environment variable CLOVER.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <doctest/doctest.h>

#include "../kernels/error.h"
#include "../model/config.h"
#include "../report/judgement.h"
#include "temporary_folder.h"

using namespace clover;
using namespace clover::test;

namespace {

const std::string two_arms = R"(title = "T"
source = "S"
finding = "F"
scale = "D"
config = "config.toml"
seeds = [1, 2]
[[arm]]
name = "a"
set = ["optimizer.lr=1e-2"]
[[arm]]
name = "b"
label = "B"
set = ["optimizer.lr=1e-3"]
[quick]
set = ["train.steps=5"]
seeds = [7]
[[metric]]
name = "loss"
take = "mean"
series = "loss"
fraction = 0.5
)";

Experiment parse(const std::string& toml) { return parse_experiment(toml, "e.toml", "folder"); }

std::string refusal(const std::string& toml) {
    try {
        parse(toml);
    } catch (const InputError& e) {
        return e.what();
    }
    return "taken";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

MeasuredRun run_with(const std::string& arm, int64_t seed, double loss) {
    MeasuredRun r;
    r.arm = arm, r.seed = seed, r.metrics["loss"] = loss;
    return r;
}

struct Program {
    TemporaryFolder folder;
    pid_t start(const std::vector<std::string>& arguments) const {
        const char* named = std::getenv("CLOVER");
        REQUIRE_MESSAGE(named != nullptr, "set CLOVER to the program's path, as make test does");
        const std::string program = std::filesystem::canonical(named);
        std::fflush(stdout);
        const pid_t pid = fork();
        if (pid == 0) {
            if (chdir((folder / "").c_str()) != 0 || !freopen("out", "w", stdout) || !freopen("err", "w", stderr)) _exit(99);
            std::vector<char*> argv{const_cast<char*>(program.c_str())};
            for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
            argv.push_back(nullptr);
            execv(program.c_str(), argv.data());
            _exit(98);
        }
        return pid;
    }
    static int code(pid_t pid) {
        int status;
        waitpid(pid, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    int run(const std::vector<std::string>& arguments) const { return code(start(arguments)); }
    void prepare(int steps, const std::string& more = "") const {
        std::string text;
        for (int i = 0; i < 6000; i++) text += char('a' + (i * i + i / 7) % 23);
        folder.file("text.txt", text);
        std::filesystem::create_directories(folder / "exp");
        folder.file("exp/config.toml", "[model]\nfamily = \"bloom\"\nlayers = 1\nhidden = 8\nheads = 2\nvocab = 257\ncontext = 8\n[data]\ntrain = \"text.txt\"\n[train]\nsteps = " + std::to_string(steps) +
                                           "\n[optimizer]\nlr = 1e-2\n[precision]\nrecipe = \"fp32\"\n[checkpoint]\nevery = 50\nkeep = 1\n");
        folder.file("exp/experiment.toml", two_arms + "[[check]]\nclaim = \"b is above\"\nmeasure = \"b:loss - a:loss\"\nabove = 0\n" + more);
    }
};

}  // namespace

TEST_SUITE("experiment") {
    TEST_CASE("arms, variants and quick make the runs") {
        const Experiment e = parse(two_arms + "[[variant]]\nname = \"v\"\n[[variant]]\nname = \"w\"\nset = [\"model.hidden=16\"]\nseeds = [3]\narms = [\"b\"]\nconfig = \"other.toml\"\n");
        std::vector<ExperimentRun> runs = runs_of(e, e.variant("v"), false, "out/v");
        REQUIRE(runs.size() == 4);
        CHECK(runs[0].folder == "out/v/a/seed1");
        CHECK(runs[1].folder == "out/v/b/seed1");
        CHECK(runs[3].folder == "out/v/b/seed2");
        CHECK(runs[0].config == "folder/config.toml");
        CHECK(runs[0].set == std::vector<std::string>{"optimizer.lr=1e-2", "train.seed=1"});
        CHECK(e.arms[0].label == "a");
        CHECK(e.arms[1].label == "B");
        runs = runs_of(e, e.variant("w"), true, "out/w");
        REQUIRE(runs.size() == 1);
        CHECK(runs[0].config == "folder/other.toml");
        CHECK(runs[0].set == std::vector<std::string>{"model.hidden=16", "optimizer.lr=1e-3", "train.steps=5", "train.seed=7"});
        CHECK_THROWS_WITH_AS(e.variant("x"), doctest::Contains("v, w"), InputError);
    }

    TEST_CASE("an arm that starts where another ended") {
        const Experiment e = parse(two_arms + "[[arm]]\nname = \"c\"\nafter = \"a\"\n");
        const std::vector<ExperimentRun> runs = runs_of(e, e.variants[0], false, "out");
        CHECK(runs[2].set == std::vector<std::string>{"train.seed=1", "checkpoint.start=\"out/a/seed1\""});
    }

    TEST_CASE("mistakes: file, line, what was expected") {
        CHECK(contains(refusal("title = 1\n"), "e.toml:1"));
        CHECK(contains(refusal("title = \"T\"\n"), "`source` is missing"));
        CHECK(contains(refusal(two_arms + "[[arm]]\nname = \"a\"\n"), "there are two"));
        CHECK(contains(refusal(two_arms + "[[arm]]\nname = \"../x\"\n"), "e.toml:23"));
        CHECK(contains(refusal(two_arms + "[[arm]]\nname = \"c\"\nafter = \"d\"\n"), "there is no arm d"));
        CHECK(contains(refusal(two_arms + "[[arm]]\nname = \"c\"\nsett = []\n"), "there is no key sett; the keys are name, label, set, after"));
        CHECK(contains(refusal(two_arms + "[[metric]]\nname = \"x\"\ntake = \"avg\"\n"), "there are mean, last, median, max, diverged, json"));
        const std::string check = two_arms + "[[check]]\nclaim = \"c\"\nmeasure = ";
        CHECK(contains(refusal(check + "\"a:loss - c:loss\"\nabove = 0\n"), "there is no arm c; there are a, b"));
        CHECK(contains(refusal(check + "\"a:los\"\nabove = 0\n"), "there is no metric los"));
        CHECK(contains(refusal(check + "\"a:loss -\"\nabove = 0\n"), "ends without"));
        CHECK(contains(refusal(check + "\"a:loss b:loss\"\nabove = 0\n"), "expected + - or /"));
        CHECK(contains(refusal(check + "\"a:loss\"\n"), "expected `above`, `below`"));
        CHECK(contains(refusal(check + "\"a:loss\"\nabove = 0\nvariants = [\"v\"]\n"), "there is no variant v"));
        CHECK(contains(refusal(two_arms + "[[variant]]\nname = \"v\"\narms = [\"a\"]\n[[check]]\nclaim = \"c\"\nmeasure = \"b:loss\"\nabove = 0\n"), "variant v has no arm b"));
        CHECK(contains(refusal("x = ["), "not TOML"));
        CHECK(contains(refusal(two_arms + "[[metric]]\nname = \"x\"\ntake = \"json\"\ncommand = \"c\"\nat = \"/x\"\n"), "there is no [[command]] c"));
    }

    TEST_CASE("what is measured of a run") {
        MeasuredRun r;
        r.data.series["loss"] = {{10, 4}, {20, 3}, {30, 2}, {40, 1}};
        Metric m;
        m.series = "loss";
        const auto value = [&](Take take, double fraction = 0.5) {
            m.take = take, m.fraction = fraction;
            return metric_of(m, r, [](const std::string&) { return R"({"sets": [{"loss": 2.5}], "refused": null})"; });
        };
        CHECK(value(Take::mean) == 1.5);
        CHECK(value(Take::last) == 1);
        CHECK(value(Take::median) == 2.5);
        CHECK(value(Take::max) == 4);
        CHECK(value(Take::diverged) == 0);
        m.limit = 1.4;
        CHECK(value(Take::diverged) == 1);
        m.at = "/sets/0/loss";
        CHECK(value(Take::json) == 2.5);
        m.at = "/sets/1/loss";
        CHECK_THROWS_AS(value(Take::json), InputError);
        m.at = "/refused/loss";
        CHECK(std::isnan(value(Take::json)));
        r.diverged = true, m.limit = 100;
        CHECK(std::isnan(value(Take::mean)));
        CHECK(value(Take::diverged) == 1);
        CHECK(value(Take::median) == 2.5);
        r.diverged = false, r.data.series["loss"].back().value = NAN;
        CHECK(value(Take::diverged) == 1);
    }

    TEST_CASE("differences are taken within a seed; a limit holds for the mean or for each; what was not measured holds nothing") {
        const std::string check = "[[check]]\nclaim = \"c\"\nmeasure = ";
        const Experiment e = parse(two_arms + check + "\"b:loss - a:loss\"\nabove = 0.1\n" + check + "\"b:loss - a:loss\"\nover = \"each\"\nabove = 0.1\n" + check +
                                   "\"b:loss / a:loss + a:loss\"\nbelow = 2.0\nfinding = false\n" + check + "\"a:loss\"\nwithin = 3\n");
        // Differences 0.4 and 0.0: mean 0.2, sd 0.2828. Quotients 1.4 and 1, plus 1 and 2: 2.4 and 3.
        std::vector<MeasuredRun> runs = {run_with("a", 1, 1), run_with("b", 1, 1.4), run_with("a", 2, 2), run_with("b", 2, 2)};
        std::vector<VerdictCheck> checks = judge(e, e.variants[0], runs, {1, 2});
        REQUIRE(checks.size() == 4);
        CHECK(checks[0].per_seed[0] == doctest::Approx(0.4));
        CHECK(checks[0].per_seed[1] == 0);
        CHECK(spread_of(checks[0].per_seed).sd == doctest::Approx(0.2 * std::sqrt(2.0)));
        CHECK(checks[0].holds);
        CHECK(!checks[1].holds);
        CHECK(checks[2].per_seed[0] == doctest::Approx(2.4));
        CHECK(checks[2].per_seed[1] == doctest::Approx(3));
        CHECK(!checks[2].holds);
        CHECK(checks[3].holds);
        CHECK(checks[3].limit == "mean within ±3");
        CHECK(outcome_of(e, e.variants[0], checks) == Reproduced::partly);
        checks[1].holds = true;
        CHECK(outcome_of(e, e.variants[0], checks) == Reproduced::yes);  // the third is not of the finding
        CHECK(checks_csv(e.variants[0], {checks[3]}, {1, 2}) == "variant,claim,measure,limit,mean,sd,seed1,seed2,holds\n,c,a:loss,mean within ±3,1.5,0.7071067811865476,1.0,2.0,yes\n");
        CHECK(results_csv(e, e.variants[0], {runs[1]}) == "variant,arm,seed,loss,not_finite,wall_seconds\n,b,1,1.4,0,0\n");
        const std::vector<VerdictRow> rows = rows_of(e, e.variants[0], runs);
        CHECK(rows[1].arm == "B");
        CHECK(rows[1].values[0].mean == doctest::Approx(1.7));
        runs.pop_back();
        checks = judge(e, e.variants[0], runs, {1, 2});
        CHECK(!checks[0].holds);
        CHECK(rows_of(e, e.variants[0], runs)[1].values[0].n == 1);
    }

    TEST_CASE("every experiment of ablations/ can be read, and so can the config of each run") {
        int64_t found = 0;
        for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(__FILE__).parent_path().parent_path() / "ablations")) {
            if (!entry.is_directory()) continue;
            found++;
            const Experiment e = read_experiment(entry.path());
            CHECK(std::filesystem::exists(entry.path() / "README.md"));
            CHECK(!e.checks.empty());
            for (const ExperimentVariant& v : e.variants)
                for (const bool quick : {false, true})
                    for (const ExperimentRun& run : runs_of(e, v, quick, "out")) {
                        INFO(run.folder);
                        CHECK_NOTHROW(read_config(run.config, run.set));
                    }
        }
        CHECK(found > 0);
    }

    TEST_CASE("two arms with two seeds: stopped by Ctrl-C, gone on with, and nothing is trained twice") {
        const Program p;
        p.prepare(3000);
        const std::string out = p.folder / "runs/ablations/exp";
        const pid_t pid = p.start({"ablation", "exp", "--jobs", "2", "--threads", "1"});
        for (int i = 0; i < 3000 && !std::filesystem::exists(out + "/a/seed1/checkpoints/step_00000050"); i++) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        kill(pid, SIGINT);
        CHECK(Program::code(pid) == 130);
        CHECK(contains(p.folder.contents("out"), "stopped"));
        CHECK(!std::filesystem::exists(out + "/results.md"));
        const int code = p.run({"ablation", "exp", "--jobs", "2", "--threads", "1", "--results", "saved"});
        INFO(p.folder.contents("err"));
        REQUIRE(code == 0);
        CHECK(contains(p.folder.contents("runs/ablations/exp/a/seed1/output.txt"), "resumed from"));
        CHECK(contains(p.folder.contents("out"), "of 1 checks hold"));
        for (const char* file : {"results.md", "results.csv", "checks.csv", "curves.svg", "report.html"}) CHECK(p.folder.contents(std::string("runs/ablations/exp/") + file) != "");
        CHECK(p.folder.contents("saved/results.csv") == p.folder.contents("runs/ablations/exp/results.csv"));
        const std::string log = p.folder.contents("runs/ablations/exp/b/seed2/output.txt");
        REQUIRE(p.run({"ablation", "exp"}) == 0);
        CHECK(p.folder.contents("runs/ablations/exp/b/seed2/output.txt") == log);
    }

    TEST_CASE("a run that diverges is a result; one that fails is told with its last line") {
        const Program p;
        p.prepare(20, "[[metric]]\nname = \"diverged\"\ntake = \"diverged\"\nseries = \"loss\"\nlimit = 0.001\n");
        CHECK(p.run({"ablation", "exp", "--quick"}) == 0);
        CHECK(contains(p.folder.contents("runs/ablations/exp-quick/results.md"), "not judged"));
        CHECK(contains(p.folder.contents("runs/ablations/exp-quick/results.csv"), ",1.0,0,"));  // above the limit, but to its end
        std::filesystem::remove(p.folder / "text.txt");
        CHECK(p.run({"ablation", "exp", "--out", "other"}) == 2);
        CHECK(contains(p.folder.contents("err"), "text.txt"));
        CHECK(contains(p.folder.contents("err"), "output.txt"));
    }
}
