// `make gpu-check`: what only a GPU can tell. Asks it the open questions (probes.cu), times every operation (workloads.cpp) and whole training
// steps, and writes all of it, with what the suite said, to gpu-report.json and gpu-report.md.
//   gpu-check [--suite FILE] [--command TEXT] [--out PREFIX] [--seconds N] [--small]
//   gpu-check --look                says which GPU there is; exit code 2 without one
//   gpu-check --dangerous-probe     prints the answer of the one probe that may end all work of its process
// After N seconds what is left is skipped, and the report says so. --small takes the sizes of the harness.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "../../model/bench.h"
#include "gpu.h"
#include "workloads.h"

using namespace clover;
using namespace clover::gpu;
using json = nlohmann::ordered_json;

namespace {

struct Options {
    std::string suite, command = "gpu-check", out = "gpu-report";
    double seconds = 240;
    bool small = false, look = false, dangerous_probe = false;
};

Options parse(int argc, char** argv) {
    Options o;
    const std::map<std::string, std::string*> texts{{"--suite", &o.suite}, {"--command", &o.command}, {"--out", &o.out}};
    for (int i = 1; i < argc; i++) {
        const std::string a = argv[i];
        const bool has_value = i + 1 < argc;
        if (a == "--small") o.small = true;
        else if (a == "--look") o.look = true;
        else if (a == "--dangerous-probe") o.dangerous_probe = true;
        else if (a == "--seconds" && has_value) o.seconds = std::stod(argv[++i]);
        else if (texts.contains(a) && has_value) *texts.at(a) = argv[++i];
        else throw InputError(text("gpu-check: ", a, " is not an option, or lacks its value"));
    }
    return o;
}

/// What the datasheets give for bf16 with f32 sums, without sparsity, in TFLOP/s. The first name that a GPU's name contains counts.
struct Peak {
    const char *name, *says;
    double tflops;
};
constexpr Peak peaks[] = {{"H200", "H200 SXM", 989.4}, {"GH200", "GH200", 989.4},   {"H100 NVL", "H100 NVL", 835.5}, {"H100 PCIe", "H100 PCIe", 756.5},
                          {"H100", "H100 SXM", 989.4}, {"B200", "B200", 2250},      {"A100", "A100", 312},           {"A40", "A40", 149.7},
                          {"A30", "A30", 165},         {"L40S", "L40S", 362},       {"L4", "L4", 121},               {"RTX 4090", "GeForce RTX 4090", 165.2},
                          {"RTX 3090", "GeForce RTX 3090", 71}};
/// Whether `name` stands in `text` as words of its own: A40 is not in "RTX A4000".
bool names(const std::string& text, const std::string& name) {
    const size_t at = text.find(name), end = at + name.size();
    const auto in_word = [&](size_t i) { return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])); };
    return at != std::string::npos && !in_word(at - 1) && !in_word(end);
}
const Peak* peak_of(const std::string& gpu) {
    const auto* found = std::find_if(std::begin(peaks), std::end(peaks), [&](const Peak& p) { return names(gpu, p.name); });
    return found == std::end(peaks) ? nullptr : found;
}

class Check {
public:
    Check(Options o, const Device& device) : options_(std::move(o)), device_(device), ctx_(device) {}

    void run() {
        describe();
        read_suite();
        section("probes", [&] { probe(); });
        section("training", [&] { time_training(); });
        section("operations", [&] { time_operations(); });
        report_["seconds"] = elapsed();
    }
    const json& report() const { return report_; }

private:
    double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
    bool late() const { return elapsed() > options_.seconds; }
    /// An error in one section leaves the others their turn.
    void section(const char* name, const std::function<void()>& work) {
        std::printf("%s\n", name);
        try {
            work();
        } catch (const std::exception& e) {
            report_["errors"].push_back(text(name, ": ", e.what()));
        }
    }
    void skip(const std::string& what) { report_["skipped"].push_back(what); }

    void describe() {
        const Facts f = facts(ctx_);
        const std::time_t now = std::time(nullptr);
        char date[40];
        std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
        std::string driver;
        std::ifstream version("/proc/driver/nvidia/version");
        if (!std::getline(version, driver)) driver = "unknown";
        peak_ = peak_of(f.name);
        report_ = {{"date", date}, {"command", options_.command}, {"gpu", f.name}, {"capability", f.capability}, {"multiprocessors", f.multiprocessors},
                   {"memory_bytes", f.memory}, {"driver", driver}, {"driver_cuda", f.driver}, {"runtime_cuda", f.runtime},
                   {"datasheet_peak", peak_ ? json{{"name", peak_->says}, {"bf16_dense_tflops", peak_->tflops}} : json(nullptr)}, {"small", options_.small}};
    }
    /// The suite's last line, and the cases that failed.
    void read_suite() {
        if (options_.suite.empty()) return;
        std::ifstream in(options_.suite);
        std::string line, last = "it did not end";
        json failed = json::array();
        while (std::getline(in, line)) {
            if (line.rfind("TEST CASE:", 0) == 0) failed.push_back(line.substr(10 + line.substr(10).find_first_not_of(' ')));
            if (line.find(" passed, ") != std::string::npos) last = line;
        }
        report_["suite"] = {{"result", last}, {"failed", failed}};
    }

    void probe() {
        std::vector<Probe> probes = run_probes(ctx_);
        probes.push_back(dangerous_probe());
        for (const Probe& p : probes) {
            const char* outcome = p.outcome == Probe::Outcome::pass ? "PASS" : p.outcome == Probe::Outcome::fail ? "FAIL" : "value";
            std::printf("  %-5s %s: %s\n", outcome, p.name.c_str(), p.said.c_str());
            report_["probes"].push_back({{"name", p.name}, {"outcome", outcome}, {"said", p.said}});
        }
    }
    /// By this program in another process, whose end does not matter.
    static Probe dangerous_probe() {
        Probe p{"cp.async of 0 bytes from an unmapped address", Probe::Outcome::value, "its process ended without an answer"};
        char line[500];
        FILE* child = popen("/proc/$PPID/exe --dangerous-probe 2>&1", "r");
        if (child && std::fgets(line, sizeof line, child)) p.said = line;
        if (child) pclose(child);
        while (!p.said.empty() && p.said.back() == '\n') p.said.pop_back();
        return p;
    }

    void time_operations() {
        const Sizes& sizes = options_.small ? small_size : full_size;
        const double copy = copy_bandwidth(ctx_, options_.small ? size_t{1} << 20 : size_t{1} << 30, options_.small ? 2 : 10);
        report_["copy_gb_per_s"] = copy * 1e-9;
        for (const NamedWorkload& named : workloads()) {
            if (late()) {
                skip(named.name);
                continue;
            }
            with_workload(ctx_, named, sizes, [&](const Workload& w) { report_["operations"].push_back(timed(named.name, w, copy)); });
        }
    }
    json timed(const std::string& name, const Workload& w, double copy) {
        const double once = time_calls(ctx_, [&] { w.run(ctx_); }, 1)[0];
        const int runs = options_.small ? 1 : int(std::clamp(0.1 / once, 5.0, 100.0));
        std::vector<double> seconds = time_calls(ctx_, [&] { w.run(ctx_); }, runs);
        std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
        const double median = std::max(seconds[size_t(runs / 2)], 1e-9);
        json row{{"name", name}, {"microseconds", median * 1e6}};
        if (w.flops > 0) {
            row["tflops"] = w.flops / median * 1e-12;
            if (peak_) row["of_datasheet_peak"] = w.flops / median * 1e-12 / peak_->tflops;
            std::printf("  %-48s %10.1f us %8.1f TFLOP/s\n", name.c_str(), median * 1e6, w.flops / median * 1e-12);
        } else {
            row["gb_per_s"] = w.bytes / median * 1e-9, row["of_copy"] = w.bytes / median / copy;
            std::printf("  %-48s %10.1f us %8.1f GB/s %5.2f of a copy\n", name.c_str(), median * 1e6, w.bytes / median * 1e-9, w.bytes / median / copy);
        }
        return row;
    }

    void time_training() {
        const std::vector<std::string> full{"model.context=1024", "train.micro_batch=16", "train.global_batch=32"};
        const std::vector<std::string> small{"model.layers=1", "model.hidden=32", "model.heads=2", "model.vocab=64", "model.context=16", "train.micro_batch=1", "train.global_batch=1"};
        for (const std::string config : {"configs/bench-124m.toml", "configs/bench-gopher-124m.toml"})
            for (const std::string recipe : {"bf16-master", "fp32"}) {
                if (late()) {
                    skip(config + ", " + recipe);
                    continue;
                }
                std::vector<std::string> set = options_.small ? small : full;
                set.push_back("precision.recipe=" + recipe);
                const TrainBench b = bench_train(read_config(config, set), device_, options_.small ? 1 : 5);
                report_["training"].push_back(trained(config, recipe, b));
            }
    }
    // The datasheet's peak is that of bf16; f32 products without TF32 have none of their own in the table.
    json trained(const std::string& config, const std::string& recipe, const TrainBench& b) {
        json row{{"config", config}, {"recipe", recipe}, {"parameters", b.parameters}, {"context", b.context}, {"micro_batch", b.micro_batch},
                 {"global_batch", b.global_batch}, {"tokens_per_s", b.tokens_per_s}, {"seconds", b.seconds}, {"tflops", b.gflops * 1e-3},
                 {"product_peak_tflops", b.peak_gflops * 1e-3}, {"of_product_peak", b.utilisation}};
        if (peak_ && recipe != "fp32") row["mfu"] = b.gflops * 1e-3 / peak_->tflops;
        std::printf("  %s, %s: %.0f tokens/s, %.1f TFLOP/s\n", config.c_str(), recipe.c_str(), b.tokens_per_s, b.gflops * 1e-3);
        return row;
    }

    Options options_;
    const Device& device_;
    Context ctx_;
    json report_;
    const Peak* peak_ = nullptr;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string number(const json& row, const char* key, double factor = 1, const char* format = "%.1f") {
    if (!row.contains(key)) return "–";
    char s[40];
    std::snprintf(s, sizeof s, format, row[key].get<double>() * factor);
    return s;
}

std::string to_markdown(const json& r) {
    std::ostringstream m;
    m << "# GPU report\n\n" << r["gpu"].get<std::string>() << ", " << r["date"].get<std::string>() << ", `" << r["command"].get<std::string>() << "`\n\n"
      << "Driver: " << r["driver"].get<std::string>() << "\n\n";
    if (r["datasheet_peak"].is_null()) m << "The datasheet peak of this GPU is not in the table: no MFU.\n\n";
    else m << "MFU is of " << number(r["datasheet_peak"], "bf16_dense_tflops") << " TFLOP/s, bf16 without sparsity, "
           << r["datasheet_peak"]["name"].get<std::string>() << " datasheet.\n\n";
    if (r.contains("suite")) {
        m << "## Suite\n\n" << r["suite"]["result"].get<std::string>() << "\n\n";
        for (const json& f : r["suite"]["failed"]) m << "- failed: " << f.get<std::string>() << "\n";
    }
    for (const char* list : {"errors", "skipped"})
        for (const json& e : r.value(list, json::array())) m << "- " << list << ": " << e.get<std::string>() << "\n";
    m << "\n## Probes\n\n| | | |\n|---|---|---|\n";
    for (const json& p : r.value("probes", json::array()))
        m << "| " << p["outcome"].get<std::string>() << " | " << p["name"].get<std::string>() << " | " << p["said"].get<std::string>() << " |\n";
    m << "\n## Operations\n\nA copy moves " << number(r, "copy_gb_per_s") << " GB/s.\n\n"
      << "| operation | µs | GB/s | of a copy | TFLOP/s | of the datasheet peak |\n|---|---|---|---|---|---|\n";
    for (const json& o : r.value("operations", json::array()))
        m << "| " << o["name"].get<std::string>() << " | " << number(o, "microseconds") << " | " << number(o, "gb_per_s") << " | " << number(o, "of_copy", 1, "%.2f")
          << " | " << number(o, "tflops") << " | " << number(o, "of_datasheet_peak", 100, "%.0f %%") << " |\n";
    m << "\n## Training\n\n| config | recipe | tokens/s | TFLOP/s | MFU | of the product peak measured here |\n|---|---|---|---|---|---|\n";
    for (const json& t : r.value("training", json::array()))
        m << "| " << t["config"].get<std::string>() << ", context " << t["context"] << ", micro-batch " << t["micro_batch"] << " | " << t["recipe"].get<std::string>()
          << " | " << number(t, "tokens_per_s", 1, "%.0f") << " | " << number(t, "tflops") << " | " << number(t, "mfu", 100, "%.1f %%") << " | "
          << number(t, "of_product_peak", 100, "%.1f %%") << " |\n";
    return m.str();
}

int check(const Options& o) {
    const Device& device = find_device("cuda");
    if (o.dangerous_probe) {
        Context ctx(device);
        std::printf("%s\n", run_dangerous_probe(ctx).said.c_str());
        std::fflush(stdout);
        std::_Exit(0);  // a faulted context cannot be taken down in order
    }
    if (o.look) {
        Context ctx(device);
        std::printf("%s\n", facts(ctx).name.c_str());
        return 0;
    }
    Check c(o, device);
    c.run();
    std::ofstream(o.out + ".json") << c.report().dump(2) << "\n";
    std::ofstream(o.out + ".md") << to_markdown(c.report());
    std::printf("%s.json and %s.md are written\n", o.out.c_str(), o.out.c_str());
    const bool suite_passed = o.suite.empty() || c.report()["suite"]["result"].get<std::string>().find(" 0 failed") != std::string::npos;
    return suite_passed && !c.report().contains("errors") ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return check(parse(argc, argv));
    } catch (const std::exception& e) {
        std::fprintf(stderr, "gpu-check: %s\n", e.what());
        return 2;
    }
}
