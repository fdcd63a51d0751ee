// What a run shows and writes down: the live progress line, OUT/log.jsonl (one JSON object a step), the same curves for TensorBoard, the resolved config.
#pragma once
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "continuation.h"
#include "spikes.h"
#include "tensorboard.h"
#include "trainer.h"

namespace clover {

/// The folder of one run.
class RunLog {
public:
    /// Makes OUT with OUT/config.toml and opens OUT/log.jsonl and a file in OUT/tensorboard. A resumed run keeps the lines up to `resumed_step` and drops later
    /// ones, so that the file reads as if the run had never stopped. Throws InputError if OUT cannot be written or another process
    /// is writing it.
    RunLog(const std::string& out, const Config& config, int64_t resumed_step, double matmul_peak);
    ~RunLog();
    RunLog(const RunLog&) = delete;

    /// Shows the step; a line of log.jsonl has the means of train.record_every steps.
    void step(const StepReport& r);
    /// With what has been drawn from each training set so far.
    void validation(const Progress& p, const std::vector<ValidReport>& reports, const std::vector<DrawnTokens>& drawn = {});
    void sample(const Progress& p, const std::string& prompt, const std::string& continuation);
    void note(const std::string& text);
    /// What --override changes from here on: {"step": n, "override": {"optimizer.lr": 0.001}}. Nothing for none.
    void overrides(const Progress& p, const std::vector<Override>& overrides);
    /// What was logged is on the disk, also the steps since the last line.
    void sync();

private:
    std::string path_;
    std::FILE* file_;
    int lock_ = -1;  // OUT/.lock, held while the run lives
    bool terminal_, line_open_ = false;
    int64_t steps_, log_every_, record_every_;
    bool scales_loss_;
    double peak_;
    double seconds_per_step_ = 0;  // smoothed
    std::chrono::steady_clock::time_point last_shown_{};
    /// Sums over the steps since the last line, and the last step.
    struct Record {
        int64_t steps = 0, norms = 0;
        double loss = 0, bits_per_byte = 0, grad_norm = 0, seconds = 0, tokens = 0, flops = 0, lr = 0;
        Progress progress;
        void add(const StepReport& r);
    } record_;
    SpikeDetector loss_spikes_, norm_spikes_;
    std::optional<TensorboardWriter> tensorboard_;

    void write_record(const StepChanges* changes);
    void write_spike(const char* what, const std::optional<Spike>& spike, const Progress& p);
    void show(const StepReport& r);
    void write(const std::string& json_line);
    void close_line();
};

/// "1.23 GB", "45.6 MB".
std::string format_bytes(size_t bytes);
/// "2h05m", "3m20s", "45s".
std::string format_seconds(double seconds);
/// The printed table of arenas, with its total.
std::string memory_table(const std::vector<MemoryRow>& rows);
size_t total_bytes(const std::vector<MemoryRow>& rows);
/// The printed table of what was drawn from each training set.
std::string drawn_table(const std::vector<DrawnTokens>& drawn);
/// The printed table of a validation: set, tokens, loss, bits per byte.
std::string validation_table(const std::vector<ValidReport>& reports);

}  // namespace clover
