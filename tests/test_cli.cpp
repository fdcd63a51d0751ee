// The program from outside: exit codes, what it says to mistakes, Ctrl-C, kill -9 and --resume. `make test` names the program in
// the environment variable CLOVER.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "support.h"
#include "temporary_folder.h"

using namespace clover::test;
using nlohmann::json;

namespace {

struct Result {
    int code;
    std::string out, err;
};

struct Program {
    TemporaryFolder folder;

    std::string binary() const {
        const char* named = std::getenv("CLOVER");
        REQUIRE_MESSAGE(named != nullptr, "set CLOVER to the program's path, as make test does");
        return std::filesystem::canonical(named);
    }
    Result run(const std::string& arguments, const std::string& before = "") {
        const std::string command = "cd " + (folder / "") + " && " + before + " OMP_NUM_THREADS=1 " + binary() + " " + arguments + " >out 2>err </dev/null";
        const int status = std::system(command.c_str());
        return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), folder.contents("out"), folder.contents("err")};
    }
    /// Starts the program and returns its process.
    pid_t start(const std::vector<std::string>& arguments) {
        const std::string program = binary();
        std::fflush(stdout);  // or the child would print it again
        const pid_t pid = fork();
        if (pid == 0) {
            if (chdir((folder / "").c_str()) != 0 || !freopen("out", "w", stdout) || !freopen("err", "w", stderr)) _exit(99);
            setenv("OMP_NUM_THREADS", "1", 1);
            std::vector<char*> argv{const_cast<char*>(program.c_str())};
            for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
            argv.push_back(nullptr);
            execv(program.c_str(), argv.data());
            _exit(98);
        }
        return pid;
    }
    /// Writes run.toml (300 quick steps) and its text.
    void prepare(const std::string& more = "") {
        std::string text;
        for (int i = 0; i < 6000; i++) text += char('a' + (i * i + i / 7) % 23);
        folder.file("text.txt", text);
        folder.file("run.toml",
                    "[model]\nfamily = \"bloom\"\nlayers = 2\nhidden = 16\nheads = 2\nvocab = 257\ncontext = 16\n"
                    "[data]\ntrain = \"text.txt\"\nvalid = \"text.txt\"\n[train]\nsteps = 300\nmicro_batch = 2\nglobal_batch = 4\neval_every = 100\n"
                    "sample_prompts = [\"abc\"]\nsample_tokens = 4\nsample_every = 100\n"
                    "[optimizer]\nlr = 1e-2\nwarmup = 40\n[precision]\nrecipe = \"bf16-master\"\n[checkpoint]\nevery = 20\nkeep = 3\n" + more);
    }
    /// log.jsonl without what depends on the clock.
    std::string log(const std::string& out) const {
        std::istringstream lines(folder.contents(out + "/log.jsonl"));
        std::string line, all;
        while (std::getline(lines, line)) {
            json entry = json::parse(line);
            for (const char* timing : {"seconds", "tokens_per_s", "utilisation"}) entry.erase(timing);
            all += entry.dump() + "\n";
        }
        return all;
    }
};

// The sanitizers' own memory counts as the program's, so that under them its peak says nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool measures_memory = false;
#else
constexpr bool measures_memory = true;
#endif

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int lines_in(const std::string& text) { return int(std::count(text.begin(), text.end(), '\n')); }

void wait_for_file(const std::string& path) {
    for (int i = 0; i < 3000 && access(path.c_str(), F_OK) != 0; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

TEST_SUITE("cli") {
    TEST_CASE("a run from start to end: files, figures, exit code 0") {
        Program p;
        p.prepare();
        const Result r = p.run("train run.toml --out run");
        INFO(r.err);
        CHECK(r.code == 0);
        CHECK(!contains(r.out, "\r"));  // not on a terminal: plain lines
        CHECK(contains(r.out, "memory"));
        CHECK(contains(r.out, "bits/byte"));
        CHECK(contains(r.out, "sample: abc"));
        CHECK(contains(r.out, "recipe = \"bf16-master\""));
        std::istringstream lines(p.folder.contents("run/log.jsonl"));
        std::string line;
        int steps = 0, validations = 0, samples = 0;
        while (std::getline(lines, line)) {
            const json entry = json::parse(line);
            if (entry.contains("valid")) {
                validations++;
                CHECK(entry["valid"]["sets"]["text"]["bits_per_byte"].get<double>() > 0);
            } else if (entry.contains("sample")) {
                samples++;
            } else {
                steps++;
                CHECK(entry["step"] == steps);
                for (const char* key : {"tokens", "loss", "bits_per_byte", "grad_norm", "lr", "tokens_per_s", "utilisation", "seconds"})
                    CHECK(entry[key].is_number());
            }
        }
        CHECK(steps == 300);
        CHECK(validations == 3);
        CHECK(samples == 3);
        CHECK(p.run("train run/config.toml --out again --set train.steps=2").code == 0);  // the resolved config is a config
    }

    TEST_CASE("a CPU without AVX-512, for which oneDNN has no bf16 products, trains and generates with every recipe") {
        Program p;
        p.prepare();
        const std::string avx2 = "ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2";
        for (const std::string recipe : {"fp32", "mixed", "bf16-master"}) {
            const Result r = p.run("train run.toml --out " + recipe + " --set train.steps=20 --set precision.recipe=" + recipe, avx2);
            INFO(r.err);
            CHECK(r.code == 0);
            CHECK(p.run("generate --checkpoint " + recipe + " --prompt abc --max-tokens 5", avx2).code == 0);
        }
        REQUIRE(p.run("train run.toml --out here --set train.steps=20").code == 0);
        const auto loss = [&](const std::string& out) { return json::parse(p.log(out).substr(0, p.log(out).find('\n')))["loss"].get<double>(); };
        CHECK(loss("bf16-master") == doctest::Approx(loss("here")).epsilon(1e-3));
    }

    TEST_CASE("killed with SIGKILL at random moments and resumed: the log of the uninterrupted run (A15, A16)") {
        Program p;
        p.prepare();
        REQUIRE(p.run("train run.toml --out whole").code == 0);
        for (int round = 0; round < 3; round++) {
            const std::string out = "killed" + std::to_string(round);
            std::vector<std::string> arguments{"train", "run.toml", "--out", out};
            for (int kill_number = 0; kill_number < 3; kill_number++) {
                const pid_t pid = p.start(arguments);
                wait_for_file(p.folder / (out + "/checkpoints/step_000000" + (kill_number == 0 ? "20" : kill_number == 1 ? "60" : "80") + "/manifest.json"));
                std::this_thread::sleep_for(std::chrono::milliseconds((round * 37 + kill_number * 11) % 60));
                kill(pid, SIGKILL);
                int status;
                waitpid(pid, &status, 0);
                arguments = {"train", "run.toml", "--out", out, "--resume"};
            }
            const Result r = p.run("train run.toml --out " + out + " --resume");
            INFO(r.err);
            CHECK(r.code == 0);
            CHECK(p.log(out) == p.log("whole"));
            for (const char* file : {"parameters.safetensors", "optimizer.safetensors", "state.json"}) {
                const std::string path = std::string("/checkpoints/step_00000300/") + file;
                CHECK(p.folder.contents(out + path) == p.folder.contents("whole" + path));
            }
        }
    }

    TEST_CASE("killed before the first checkpoint: --resume says so and begins anew (A16)") {
        Program p;
        p.prepare();
        REQUIRE(p.run("train run.toml --out whole --set checkpoint.every=0").code == 0);
        const pid_t pid = p.start({"train", "run.toml", "--out", "killed", "--set", "checkpoint.every=0"});
        for (int i = 0; i < 3000 && p.folder.contents("killed/log.jsonl").empty(); i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        REQUIRE(!std::filesystem::exists(p.folder / "killed/checkpoints"));
        Result r = p.run("train run.toml --out killed --resume --set optimizer.beta2=0.9");
        CHECK(r.code == 2);
        CHECK(contains(r.err, "beta2"));
        r = p.run("train run.toml --out killed --resume");
        INFO(r.err);
        CHECK(r.code == 0);
        CHECK(contains(r.out, "begins anew"));
        CHECK(p.log("killed") == p.log("whole"));
    }

    TEST_CASE("the peak memory of a run, begun or continued, is within 1.1 of the table it prints") {
        if (!measures_memory) {
            MESSAGE("not checked: a sanitizer's memory would count");
            return;
        }
        Program p;
        p.prepare();
        for (const char* shape : {"model.hidden=16", "model.hidden=256"}) {
            const std::string out = std::string("run") + shape;
            for (const bool resume : {false, true}) {
                std::vector<std::string> arguments{"train", "run.toml", "--out", out, "--set", "train.steps=3", "--set", "checkpoint.every=1", "--set", shape};
                if (resume) std::filesystem::remove_all(p.folder / (out + "/checkpoints/step_00000003")), arguments.push_back("--resume");
                rusage used{};
                int status;
                REQUIRE(wait4(p.start(arguments), &status, 0, &used) > 0);
                const std::string printed = p.folder.contents("out");
                INFO(printed, p.folder.contents("err"));
                REQUIRE(status == 0);
                double planned = 0;
                char unit[3] = "";
                REQUIRE(std::sscanf(printed.c_str() + printed.find("  total "), "  total %lf %2s", &planned, unit) == 2);
                REQUIRE(std::string(unit) == "MB");
                CHECK(double(used.ru_maxrss) * 1024 <= 1.1e6 * planned);
            }
        }
    }

    TEST_CASE("Ctrl-C saves, exits with 130, and the run can be continued") {
        Program p;
        p.prepare();
        REQUIRE(p.run("train run.toml --out whole").code == 0);
        const pid_t pid = p.start({"train", "run.toml", "--out", "stopped"});
        wait_for_file(p.folder / "stopped/checkpoints/step_00000020/manifest.json");
        kill(pid, SIGINT);
        int status;
        waitpid(pid, &status, 0);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 130);
        CHECK(contains(p.folder.contents("out"), "--resume"));
        CHECK(p.run("train run.toml --out stopped --resume").code == 0);
        CHECK(p.log("stopped") == p.log("whole"));
    }

    TEST_CASE("mistakes: exit code 2 and one line that says what and where (A19)") {
        Program p;
        p.prepare();
        const auto refused = [&](const std::string& arguments, const std::vector<std::string>& said) {
            const Result r = p.run(arguments);
            INFO(arguments, "\n", r.err);
            CHECK(r.code == 2);
            for (const std::string& s : said) CHECK(contains(r.err, s));
            CHECK(lines_in(r.err) <= 2);
        };
        refused("train run.toml --set train.learning_rte=1", {"train.learning_rte", "optimizer.lr"});
        refused("train run.toml --set optimizer.lr=abc", {"optimizer.lr", "abc"});
        refused("train run.toml --set train.steps=-1", {"train.steps"});
        refused("train run.toml --set train.steps=1e3", {"train.steps"});
        refused("train run.toml --set train.global_batch=3", {"global_batch", "micro_batch"});
        refused("train missing.toml", {"missing.toml"});
        refused("train run.toml --set data.train=nowhere.txt", {"nowhere.txt"});
        refused("train run.toml --set model.context=8000", {"text", "tokens"});
        refused("train run.toml --device cdua", {"cdua", "cpu"});
        refused("train run.toml --learning-rte 1", {"learning-rte"});
        refused("train run.toml --out", {"--out"});
        refused("train run.toml --out /proc/nowhere", {"/proc/nowhere"});
        refused("train run.toml --out new --resume", {"new"});
        refused("generate --checkpoint nowhere --prompt x", {"nowhere"});
        refused("generate --prompt x", {"--checkpoint"});
        refused("bench train missing.toml", {"missing.toml"});
        refused("corpus missing.toml --out c", {"missing.toml"});
        refused("fly", {"fly"});
        refused("tokenizer encod --tokenizer bytes", {"there is no command tokenizer encod", "encode, decode"});
        refused("bench fly", {"there is no command bench fly"});
        refused("train run.toml --set data.tokenizer=nowhere.json", {"nowhere.json"});
        refused("train run.toml --set data.tokenizer=run.toml", {"run.toml"});
        refused("train run.toml --set data.reset_positions=true", {"reset_positions", "alibi"});
        refused("tokenize --tokenizer bytes --out x nowhere.txt", {"nowhere.txt"});
        refused("tokenize --tokenizer bytes --out x run.toml", {"run.toml", "--format"});
        refused("tokenizer train --vocab 100 --out t.json text.txt", {"100", "260"});
        refused("merge --out x nowhere", {"nowhere"});
        refused("filter --out x.jsonl --disable wrods text.txt", {"wrods", "min_words"});
        refused("", {"subcommand"});
        CHECK(p.run("--help").code == 0);
        CHECK(contains(p.run("train --help").out, "optimizer.warmup"));
    }

    TEST_CASE("without a GPU --device cuda says in one line why not, and the CPU trains, whether CUDA was built in or not") {
        Program p;
        p.prepare();
        const std::string no_gpu = "CUDA_VISIBLE_DEVICES=";
        for (const std::string command : {"train run.toml --device cuda", "bench train run.toml --device cuda"}) {
            const Result r = p.run(command, no_gpu);
            INFO(command, "\n", r.err);
            CHECK(r.code == 2);
            CHECK(contains(r.err, "--device cuda: "));
            CHECK((contains(r.err, "without CUDA") || contains(r.err, "no NVIDIA driver") || contains(r.err, "no NVIDIA GPU")));
            CHECK(contains(r.err, "--device cpu"));
            CHECK(lines_in(r.err) == 1);
        }
        CHECK(p.run("train run.toml --set train.steps=2 --device auto --out auto", no_gpu).code == 0);
    }

    TEST_CASE("a run is not overwritten, and not continued with other values") {
        Program p;
        p.prepare();
        REQUIRE(p.run("train run.toml --out run --set train.steps=40").code == 0);
        Result r = p.run("train run.toml --out run --set train.steps=40");
        CHECK(r.code == 2);
        CHECK(contains(r.err, "--resume"));
        r = p.run("train run.toml --out run --resume --set train.steps=40 --set optimizer.beta2=0.9");
        CHECK(r.code == 2);
        CHECK(contains(r.err, "beta2"));
        r = p.run("train run.toml --out run --resume --set train.steps=40 --set model.hidden=32");
        CHECK(r.code == 2);
        CHECK(contains(r.err, "hidden"));
        CHECK(p.run("train run.toml --out run --resume --set train.steps=40 --set train.log_every=7").code == 0);
        std::filesystem::remove_all(p.folder / "run/checkpoints");  // the log alone is worth keeping
        CHECK(p.run("train run.toml --out run --set train.steps=40").code == 2);
    }

    TEST_CASE("--override changes schedule and steps of a run that is resumed, and says so in output and log") {
        Program p;
        p.prepare();
        const std::string base = "train run.toml --out run --set data.order='\"epochs\"'";
        REQUIRE(p.run(base + " --set train.steps=40").code == 0);
        Result r = p.run(base + " --resume --set train.steps=60 --set optimizer.lr=5e-3");
        CHECK(r.code == 2);
        CHECK(contains(r.err, "train.steps"));
        CHECK(contains(r.err, "--override"));
        CHECK(p.run(base + " --override").code == 2);
        CHECK(p.run(base + " --resume --override --set train.steps=60 --set optimizer.beta2=0.9").code == 2);
        CHECK(p.run(base + " --resume --override --set train.steps=30").code == 2);
        r = p.run(base + " --resume --override --set train.steps=60 --set optimizer.lr=5e-3 --set 'optimizer.schedule=\"linear-steps\"'");
        INFO(r.err);
        CHECK(r.code == 0);
        CHECK(contains(r.out, "override: optimizer.lr = 0.005, before 0.01"));
        CHECK(contains(p.log("run"), R"({"override":{"optimizer.lr":0.005,"optimizer.min_lr":0.0005,"optimizer.schedule":"linear-steps","train.steps":60},"step":40})"));
        CHECK(contains(p.log("run"), "\"step\":60"));
        // From here on the new values are the run's.
        CHECK(p.run(base + " --resume --set train.steps=60 --set optimizer.lr=5e-3 --set 'optimizer.schedule=\"linear-steps\"'").code == 0);
    }

    TEST_CASE("checkpoint.start begins from another run's parameters, and the run goes on without it; eval repeats a run's validation") {
        Program p;
        p.prepare();
        REQUIRE(p.run("train run.toml --out first --set train.steps=60 --set train.eval_batches=0").code == 0);
        const auto valid = [&](const std::string& out) {
            const std::string log = p.log(out), line = log.substr(log.rfind("{\"drawn"));
            return json::parse(line.substr(0, line.find('\n')))["valid"]["sets"]["text"];
        };
        const json source = valid("first");
        Result r = p.run("eval --checkpoint first --data text.txt --json");
        INFO(r.err);
        REQUIRE(r.code == 0);
        const json evaluated = json::parse(r.out)["lengths"][0]["apart"];
        CHECK(evaluated["loss"] == source["loss"]);
        CHECK(evaluated["bits_per_byte"] == source["bits_per_byte"]);
        CHECK(evaluated["tokens"] == source["tokens"]);
        CHECK(contains(p.run("eval --checkpoint first --data text.txt --context 16,64 --stride 8 --tokens 500 --positions").out, "stride 8"));
        CHECK(contains(p.run("eval --checkpoint first --data text.txt --context 16,4 --stride 8").err, "--stride 8"));
        CHECK(p.run("eval --checkpoint first --data text.txt --context 16,abc").code == 2);
        CHECK(p.run("eval --checkpoint first --data text.txt --context 0").code == 2);

        const std::string tuning = "train run.toml --out tuned --set train.steps=40 --set train.eval_batches=0 --set optimizer.lr=1e-9 --set optimizer.min_lr=0 --set optimizer.weight_decay=0 --set 'checkpoint.start=";
        r = p.run(tuning + "\"first\"'");
        INFO(r.err);
        REQUIRE(r.code == 0);
        CHECK(contains(r.out, "parameters of first/checkpoints/step_00000060"));
        CHECK(valid("tuned")["loss"].get<double>() == doctest::Approx(source["loss"].get<double>()).epsilon(1e-3));
        std::filesystem::remove_all(p.folder / "first");
        std::filesystem::remove_all(p.folder / "tuned/checkpoints/step_00000040");
        CHECK(p.run(tuning + "\"first\"' --resume").code == 0);
        r = p.run("train run.toml --out third --set 'checkpoint.start=\"first\"'");
        CHECK(r.code == 2);
        CHECK(contains(r.err, "first"));
    }

    TEST_CASE("two processes cannot train into one folder; a model beyond the memory is refused with its size") {
        Program p;
        p.prepare();
        // No checkpoint is written meanwhile, for which the second process would be refused as well.
        const pid_t pid = p.start({"train", "run.toml", "--out", "run", "--set", "train.steps=100000", "--set", "checkpoint.every=100000"});
        wait_for_file(p.folder / "run/log.jsonl");
        Result r = p.run("train run.toml --out run --resume --set train.steps=100000");
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        CHECK(r.code == 2);
        CHECK(contains(r.err, "another process"));
        r = p.run("train run.toml --out big --set model.hidden=256 --set model.layers=4 --set train.micro_batch=1048576 --set train.global_batch=1048576 --set train.steps=1");
        INFO(r.err);
        CHECK(r.code == 2);
        CHECK(contains(r.err, "not enough memory"));
        CHECK(contains(r.err, "activations"));
        CHECK(lines_in(r.err) == 1);
        // 8e13 parameters: no disk here takes the checkpoint.
        r = p.run("train run.toml --out full --set model.hidden=262144 --set model.heads=1024 --set model.layers=100");
        INFO(r.err);
        CHECK(r.code == 2);
        CHECK(contains(r.err, "a checkpoint takes"));
        CHECK(!std::filesystem::exists(p.folder / "full"));
    }

    TEST_CASE("a full disk: exit code 3, the last good checkpoint stays and serves (A16)") {
        Program p;
        p.prepare();
        REQUIRE(p.run("train run.toml --out whole --set train.steps=60").code == 0);
        REQUIRE(p.run("train run.toml --out run --set train.steps=60 --set checkpoint.every=30", "true;").code == 0);
        std::filesystem::remove_all(p.folder / "run/checkpoints/step_00000060");
        // Files of more than 20 kB cannot be written; the log stays below.
        Result r = p.run("train run.toml --out run --resume --set train.steps=60", "ulimit -f 40; trap '' XFSZ;");
        INFO(r.err);
        CHECK(r.code == 3);
        CHECK(lines_in(r.err) == 1);
        CHECK(contains(r.err, "safetensors"));
        CHECK(!std::filesystem::exists(p.folder / "run/checkpoints/step_00000060"));
        CHECK(p.run("train run.toml --out run --resume --set train.steps=60").code == 0);
        CHECK(p.log("run") == p.log("whole"));
    }

    TEST_CASE("a damaged newest checkpoint: a warning, and the one before serves") {
        Program p;
        p.prepare();
        REQUIRE(p.run("train run.toml --out run --set train.steps=60").code == 0);
        const std::string damaged = p.folder / "run/checkpoints/step_00000060/parameters.safetensors";
        std::string bytes = p.folder.contents("run/checkpoints/step_00000060/parameters.safetensors");
        bytes[bytes.size() / 2] = char(bytes[bytes.size() / 2] ^ 1);
        std::ofstream(damaged, std::ios::binary) << bytes;
        const Result r = p.run("train run.toml --out run --resume --set train.steps=60");
        CHECK(r.code == 0);
        CHECK(contains(r.err, "warning"));
        CHECK(contains(r.err, "parameters.safetensors"));
        CHECK(contains(r.out, "step_00000040"));
    }

    TEST_CASE("generate: the same seed, the same text; from a run or one of its checkpoints; a prompt from standard input") {
        Program p;
        p.prepare();
        REQUIRE(p.run("train run.toml --out run --set train.steps=60").code == 0);
        const auto text = [&](const std::string& more) {
            const Result r = p.run("generate --checkpoint run --prompt abc --max-tokens 30 " + more);
            INFO(r.err);
            CHECK(r.code == 0);
            CHECK(r.out.rfind("abc", 0) == 0);
            return r.out;
        };
        CHECK(text("--seed 1") == text("--seed 1"));
        CHECK(text("--seed 1") != text("--seed 2"));
        CHECK(text("--temperature 0 --seed 1") == text("--temperature 0 --seed 2"));
        CHECK(text("--top-k 1 --seed 1") == text("--temperature 0"));
        p.folder.file("prompt", "abc");
        CHECK(p.run("generate --checkpoint run/checkpoints/step_00000060 --prompt - --max-tokens 30 --seed 1 < prompt").code == 0);
        CHECK(p.run("generate --checkpoint run --prompt abc --max-tokens 0").code == 2);
        CHECK(p.run("generate --checkpoint run --prompt abc --temperature -1").code == 2);
        CHECK(p.run("generate --checkpoint run --prompt abc --temperature nan").code == 2);
        CHECK(p.run("generate --checkpoint run --prompt abc --top-p NaN").code == 2);
    }

    TEST_CASE("from text to generated text with a tokenizer of one's own, whose file may be gone afterwards") {
        Program p;
        p.prepare();
        REQUIRE(p.run("tokenizer train --vocab 300 --style gpt2 --out t.json text.txt").code == 0);
        REQUIRE(p.run("tokenize --tokenizer t.json --out set text.txt text.txt").code == 0);
        const std::string options = "--set data.tokenizer=t.json --set model.vocab=300 --set 'data.train=[\"set\"]' --set data.valid=text.txt --set train.steps=6 --set train.eval_every=3";
        const Result trained = p.run("train run.toml --out run " + options);
        INFO(trained.err);
        REQUIRE(trained.code == 0);
        CHECK(contains(trained.out, "tokens drawn"));
        std::istringstream lines(p.folder.contents("run/log.jsonl"));
        int64_t drawn = -1;
        for (std::string line; std::getline(lines, line);)
            if (const json entry = json::parse(line); entry.contains("drawn")) drawn = entry["drawn"]["set"];
        CHECK(drawn == 6 * 4 * 16);
        // Bits per byte are those of the text: of all of it, whatever its tokens are.
        const Result all = p.run("train run.toml --out all --set train.eval_batches=0 " + options);
        REQUIRE(all.code == 0);
        int64_t bytes = -1;
        std::istringstream all_lines(p.folder.contents("all/log.jsonl"));
        for (std::string line; std::getline(all_lines, line);)
            if (const json entry = json::parse(line); entry.contains("valid")) bytes = entry["valid"]["sets"]["text"]["bytes"];
        // Of the 6,000 bytes all but those of the first token are predicted.
        const std::string ids = p.run("tokenizer encode --tokenizer t.json --document text.txt").out;
        p.folder.file("first.txt", ids.substr(0, ids.find(' ')));
        const std::string first = p.run("tokenizer decode --tokenizer t.json --document first.txt").out;
        REQUIRE(!first.empty());
        CHECK(bytes == 6000 - int64_t(first.size()));
        CHECK(contains(p.run("train run.toml --out other --set 'data.train=[\"set\"]'").err, "was made with tokenizer tokenizer.json-"));
        std::filesystem::remove(p.folder / "t.json");
        const Result generated = p.run("generate --checkpoint run --prompt abc --max-tokens 5 --seed 2");
        CHECK(generated.code == 0);
        CHECK(generated.out.starts_with("abc"));
        CHECK(p.run("generate --checkpoint run --prompt abc --max-tokens 5 --seed 2").out == generated.out);
    }

    TEST_CASE("bench: one JSON object; peak memory within 1.1 of what was planned") {
        Program p;
        p.prepare();
        const Result r = p.run("bench train run.toml --json --steps 2 --set model.hidden=256 --set model.layers=4 --set model.context=128");
        INFO(r.err);
        CHECK(r.code == 0);
        const json b = json::parse(r.out);
        for (const char* key : {"tokens_per_s", "gflops", "peak_gflops", "utilisation", "peak_rss_bytes", "planned_bytes"}) CHECK(b[key].get<double>() > 0);
        if (measures_memory) CHECK(b["peak_rss_bytes"].get<double>() <= 1.1 * b["planned_bytes"].get<double>());
    }
    TEST_CASE("bench optimizer: bytes that a step moves, and its time against memory's") {
        Program p;
        p.prepare();
        for (const auto& [options, bytes] : {std::pair{"--set precision.recipe=fp32", 28}, {"--set precision.recipe=bf16-sr", 24}, {"--set precision.recipe=bf16-master", 30},
                                             {"--set precision.recipe=fp32 --set optimizer.name=adafactor --set optimizer.min_factored=1", 21}}) {
            const Result r = p.run(std::string("bench optimizer run.toml --json --steps 2 --set model.hidden=256 --set model.layers=4 ") + options);
            INFO(options, " ", r.err, r.out);
            REQUIRE(r.code == 0);
            const json b = json::parse(r.out);
            for (const char* key : {"seconds", "gb_per_s", "copy_gb_per_s", "copy_ratio", "add_gb_per_s", "add_ratio"}) CHECK(b[key].get<double>() > 0);
            const double each = b["bytes"].get<double>() / b["parameters"].get<double>();
            CHECK(std::abs(each - bytes) < 1.5);
        }
    }
}
