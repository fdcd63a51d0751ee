#include "run_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "../data/new_file.h"
#include "../data/text_source.h"

namespace clover {
namespace {

using json = nlohmann::ordered_json;

template <class... Args>
std::string format(const char* pattern, Args... args) {
    char buffer[512];
    std::snprintf(buffer, sizeof buffer, pattern, args...);
    return buffer;
}

size_t terminal_columns() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

// The lines of an earlier log up to and including `step`, given one by one to `see`. A last line cut short by a kill does not parse and goes.
std::string lines_up_to(const std::string& path, int64_t step, const std::function<void(const json&)>& see) {
    std::string kept;
    if (!std::filesystem::exists(path)) return kept;
    const std::string all = read_text_file(path);
    for (size_t begin = 0, end; begin < all.size(); begin = end + 1) {
        end = all.find('\n', begin);
        if (end == std::string::npos) break;
        const std::string line = all.substr(begin, end - begin);
        const json entry = json::parse(line, nullptr, false);
        const bool keep = entry.is_object() && entry.contains("step") && entry["step"].is_number_integer() && entry["step"].get<int64_t>() <= step;
        if (!keep) continue;
        kept += line + "\n";
        see(entry);
    }
    return kept;
}

json by_group(const StepChanges& c, double (GroupChange::*value)() const) {
    json classes = json::object(), layers = json::array();
    for (int k = 0; k < parameter_classes; k++)
        if (c.classes[size_t(k)].count > 0) classes[to_string(ParameterClass(k))] = (c.classes[size_t(k)].*value)();
    for (const GroupChange& layer : c.layers) layers.push_back((layer.*value)());
    return {{"classes", classes}, {"layers", layers}};
}

void add_by_group(std::vector<Scalar>& to, const std::string& what, const StepChanges& c, double (GroupChange::*value)() const) {
    for (int k = 0; k < parameter_classes; k++)
        if (c.classes[size_t(k)].count > 0) to.push_back({what + "/" + to_string(ParameterClass(k)), (c.classes[size_t(k)].*value)()});
    for (size_t i = 0; i < c.layers.size(); i++) to.push_back({what + "/layer_" + std::to_string(i), (c.layers[i].*value)()});
}

}  // namespace

RunLog::RunLog(const std::string& out, const Config& config, int64_t resumed_step, double matmul_peak)
    : path_(out + "/log.jsonl"), file_(nullptr), terminal_(isatty(STDOUT_FILENO)), steps_(config.train.steps),
      log_every_(config.train.log_every), record_every_(config.train.record_every), scales_loss_(precision_of(config.precision).scales_loss()), peak_(matmul_peak) {
    try {
        std::filesystem::create_directories(out);
        lock_ = open((out + "/.lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
        require(lock_ >= 0, std::strerror(errno));
        require(flock(lock_, LOCK_EX | LOCK_NB) == 0, "another process is training there; wait for it, or choose another --out");
        write_file_whole(out + "/config.toml", to_toml(config));
        write_file_whole(path_, lines_up_to(path_, resumed_step, [&](const json& entry) {
            if (!entry.contains("grad_norm")) return;
            loss_spikes_.push(entry.value("loss", double(NAN)));
            norm_spikes_.push(entry.value("grad_norm", double(NAN)));
        }));
        tensorboard_.emplace(out + "/tensorboard", resumed_step + 1);
    } catch (const std::exception& e) {
        if (lock_ >= 0) close(lock_);
        throw InputError(text("--out ", out, ": cannot be written: ", e.what()));
    }
    file_ = std::fopen(path_.c_str(), "a");
    require(file_ != nullptr, path_, ": ", std::strerror(errno));
}

RunLog::~RunLog() {
    close_line();
    if (file_) std::fclose(file_);
    close(lock_);
}

void RunLog::write(const std::string& json_line) {
    const bool ok = std::fputs((json_line + "\n").c_str(), file_) >= 0 && std::fflush(file_) == 0;
    if (!ok) throw Error(text(path_, ": cannot be written: ", std::strerror(errno), "; free some space and continue with --resume"));
}

void RunLog::close_line() {
    if (line_open_) std::printf("\n");
    line_open_ = false;
    std::fflush(stdout);
}

void RunLog::Record::add(const StepReport& r) {
    steps++;
    if (!r.skipped) norms++, grad_norm += r.grad_norm;
    loss += r.loss, bits_per_byte += r.bits_per_byte, seconds += r.seconds, tokens += r.tokens_per_s * r.seconds, flops += r.flops;
    lr = r.lr, progress = r.progress;
}

void RunLog::write_record(const StepChanges* changes) {
    if (record_.steps == 0) return;
    const Record r = std::exchange(record_, {});
    const double n = double(r.steps), loss = r.loss / n, grad_norm = r.grad_norm / double(r.norms);  // JSON has null for none
    json line{{"step", r.progress.step}, {"samples", r.progress.samples}, {"tokens", r.progress.tokens}, {"loss", loss},
              {"bits_per_byte", r.bits_per_byte / n}, {"grad_norm", grad_norm}, {"lr", r.lr}, {"tokens_per_s", r.tokens / r.seconds},
              {"utilisation", r.flops / r.seconds / peak_}, {"seconds", r.seconds / n}};
    if (record_every_ > 1) line["steps"] = r.steps;
    std::vector<Scalar> curves{{"train/loss", loss}, {"train/bits_per_byte", r.bits_per_byte / n}, {"train/grad_norm", grad_norm}, {"train/lr", r.lr},
                               {"train/tokens_per_s", r.tokens / r.seconds}};
    if (scales_loss_) {
        line["loss_scale"] = r.progress.loss_scale.value, line["skipped"] = r.progress.loss_scale.skipped;
        curves.push_back({"train/loss_scale", r.progress.loss_scale.value});
        curves.push_back({"train/skipped", double(r.progress.loss_scale.skipped)});
    }
    if (changes) {
        line["stale"] = by_group(*changes, &GroupChange::stale);
        line["update"] = by_group(*changes, &GroupChange::update_ratio);
        add_by_group(curves, "stale", *changes, &GroupChange::stale);
        add_by_group(curves, "update", *changes, &GroupChange::update_ratio);
    }
    write(line.dump());
    tensorboard_->add(r.progress.step, curves);
    write_spike("loss", loss_spikes_.push(loss), r.progress);
    write_spike("grad_norm", norm_spikes_.push(grad_norm), r.progress);
}

void RunLog::write_spike(const char* what, const std::optional<Spike>& spike, const Progress& p) {
    if (!spike) return;
    write(json{{"step", p.step}, {"spike", what}, {"value", spike->value}, {"mean", spike->mean}, {"sd", spike->sd}}.dump());
    close_line();
    std::printf("spike: step %lld has %s %.4g, the steps before %.4g ± %.2g\n", static_cast<long long>(p.step), what, spike->value, spike->mean, spike->sd);
}

void RunLog::step(const StepReport& r) {
    record_.add(r);
    if (r.progress.step % record_every_ == 0 || r.progress.step == steps_ || r.changes) write_record(r.changes);
    show(r);
}

void RunLog::show(const StepReport& r) {
    const double utilisation = r.flops / r.seconds / peak_;
    seconds_per_step_ = seconds_per_step_ == 0 ? r.seconds : 0.95 * seconds_per_step_ + 0.05 * r.seconds;
    const bool due = r.progress.step % log_every_ == 0 || r.progress.step == steps_ || r.progress.step == 1;
    // On a terminal one line is written over and over, ten times a second at most; every log_every-th step stays.
    const auto now = std::chrono::steady_clock::now();
    if (!due && (!terminal_ || now - last_shown_ < std::chrono::milliseconds(100))) return;
    last_shown_ = now;
    std::string line = format("step %*lld/%lld  loss %.4f  %.4f bits/byte  grad norm %.3f  lr %.2e  %.0f tokens/s  %.0f%% of %.0f GFLOP/s  %s left",
                                    int(std::to_string(steps_).size()), static_cast<long long>(r.progress.step), static_cast<long long>(steps_), r.loss,
                                    r.bits_per_byte, r.grad_norm, r.lr, r.tokens_per_s, 100 * utilisation, peak_ / 1e9,
                                    format_seconds(seconds_per_step_ * double(steps_ - r.progress.step)).c_str());
    if (terminal_) {
        line.resize(std::min(line.size(), terminal_columns() - 1));  // a wrapped line cannot be written over
        std::printf("\r\033[K%s", line.c_str());
        line_open_ = true;
        if (due) close_line();
    } else {
        std::printf("%s\n", line.c_str());
    }
    std::fflush(stdout);
}

void RunLog::validation(const Progress& p, const std::vector<ValidReport>& reports, const std::vector<DrawnTokens>& drawn) {
    close_line();
    json sets = json::object();
    std::vector<Scalar> curves;
    ValidReport all;
    double nats = 0, bits = 0;
    for (const ValidReport& r : reports) {
        sets[r.name] = json{{"loss", r.loss}, {"bits_per_byte", r.bits_per_byte}, {"tokens", r.tokens}, {"bytes", r.bytes}};
        curves.push_back({"valid/" + r.name + "/bits_per_byte", r.bits_per_byte});
        curves.push_back({"valid/" + r.name + "/loss", r.loss});
        nats += r.loss * double(r.tokens), bits += r.bits_per_byte * double(r.bytes);
        all.tokens += r.tokens, all.bytes += r.bytes;
    }
    tensorboard_->add(p.step, curves);
    json taken = json::object();
    for (const DrawnTokens& d : drawn) taken[d.name] = d.tokens;
    write(json{{"step", p.step}, {"tokens", p.tokens},
               {"valid", {{"loss", nats / double(all.tokens)}, {"bits_per_byte", bits / double(all.bytes)}, {"sets", sets}}},
               {"drawn", taken}}.dump());
    std::printf("validation after step %lld\n%s", static_cast<long long>(p.step), validation_table(reports).c_str());
    std::fflush(stdout);
}

void RunLog::sample(const Progress& p, const std::string& prompt, const std::string& continuation) {
    close_line();
    // Bytes that are no UTF-8 (a character cut off, a young model) become U+FFFD.
    const std::string printable = json(prompt + continuation).dump(-1, ' ', false, json::error_handler_t::replace);
    write("{\"step\":" + std::to_string(p.step) + ",\"prompt\":" + json(prompt).dump(-1, ' ', false, json::error_handler_t::replace) +
          ",\"sample\":" + printable + "}");
    std::printf("sample: %s\n", json::parse(printable).get<std::string>().c_str());
    std::fflush(stdout);
}

void RunLog::sync() {
    write_record(nullptr);
    if (fsync(fileno(file_)) != 0) throw Error(text(path_, ": cannot be written: ", std::strerror(errno)));
    tensorboard_->sync();
}

void RunLog::overrides(const Progress& p, const std::vector<Override>& overrides) {
    if (overrides.empty()) return;
    json values = json::object();
    for (const Override& o : overrides) {
        values[o.key] = json::parse(o.has);  // numbers and words are written alike in TOML and JSON
        note(text("override: ", o.key, " = ", o.has, ", before ", o.had));
    }
    write(json{{"step", p.step}, {"override", values}}.dump());
}

void RunLog::note(const std::string& text) {
    close_line();
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
}

std::string format_bytes(size_t bytes) {
    const char* unit[] = {"B", "kB", "MB", "GB", "TB"};
    double x = double(bytes);
    int u = 0;
    while (x >= 1000 && u < 4) x /= 1000, u++;
    return u == 0 ? format("%zu B", bytes) : format("%.*f %s", x < 10 ? 2 : 1, x, unit[u]);
}

std::string format_seconds(double seconds) {
    const long long s = std::llround(seconds);
    if (s >= 3600) return format("%lldh%02lldm", s / 3600, s / 60 % 60);
    if (s >= 60) return format("%lldm%02llds", s / 60, s % 60);
    return format("%llds", s);
}

size_t total_bytes(const std::vector<MemoryRow>& rows) {
    size_t total = 0;
    for (const MemoryRow& r : rows) total += r.bytes;
    return total;
}

std::string memory_table(const std::vector<MemoryRow>& rows) {
    std::string table = "memory\n";
    for (const MemoryRow& r : rows) table += format("  %-26s %10s\n", r.what.c_str(), format_bytes(r.bytes).c_str());
    return table + format("  %-26s %10s\n", "total", format_bytes(total_bytes(rows)).c_str());
}

std::string drawn_table(const std::vector<DrawnTokens>& drawn) {
    std::string table = format("  %-12s %14s %10s\n", "set", "tokens drawn", "epochs");
    for (const DrawnTokens& d : drawn) table += format("  %-12s %14lld %10.3f\n", d.name.c_str(), static_cast<long long>(d.tokens), d.epochs);
    return table;
}

std::string validation_table(const std::vector<ValidReport>& reports) {
    std::string table = format("  %-12s %10s %10s %14s\n", "set", "tokens", "loss", "bits per byte");
    double bits = 0, nats = 0, tokens = 0, bytes = 0;
    for (const ValidReport& r : reports) {
        table += format("  %-12s %10lld %10.4f %14.4f\n", r.name.c_str(), static_cast<long long>(r.tokens), r.loss, r.bits_per_byte);
        bits += r.bits_per_byte * double(r.bytes), nats += r.loss * double(r.tokens), tokens += double(r.tokens), bytes += double(r.bytes);
    }
    if (reports.size() > 1) table += format("  %-12s %10.0f %10.4f %14.4f\n", "all", tokens, nats / tokens, bits / bytes);
    return table;
}

}  // namespace clover
