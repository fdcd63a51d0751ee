// A training run: data, model, optimizer and their memory, and one step of it.
#pragma once
#include <functional>
#include <memory>

#include "../data/indexed_dataset.h"
#include "../data/loader.h"
#include "../data/tokenizer.h"
#include "checkpoint.h"
#include "generate.h"
#include "window_loss.h"
#include "step_changes.h"

namespace clover {

struct ValidSet {
    std::string name;
    std::shared_ptr<const IndexedDataset> data;
    int64_t first = 0, sequences = -1;  // the part of it that is used; -1: all from first on
    double bytes_per_token_byte = 1;    // of the original text, where normalisation has changed it
};

/// Tokens drawn from one training set so far.
struct DrawnTokens {
    std::string name;
    int64_t tokens;
    double epochs;
};

/// Where a run's tokens come from.
struct TrainingData {
    std::shared_ptr<const Tokenizer> tokenizer;
    /// Writes the context + 1 tokens of the run's i-th sample.
    std::function<void(int64_t i, int32_t* tokens)> read;
    /// What the first i samples have taken from each set.
    std::function<std::vector<DrawnTokens>(int64_t i)> drawn;
    /// Whether a run of `total` samples goes through the data in the same order as far as both go. Null: always.
    std::function<bool(int64_t total)> same_order;
    int32_t end_of_document = -1;
    std::vector<ValidSet> valid;
    std::vector<int32_t> token_bytes;  // bytes of text behind each token id
    std::string fingerprint;           // of the sets: what their documents and tokens count
    std::string summary;               // printed at start
};

/// Opens (and where needed tokenises) what the config names. Throws InputError naming the set and what it lacks: no data, fewer
/// tokens than a sample, ids beyond the vocabulary, another tokenizer than the one the file was made with.
TrainingData open_training_data(const Config& config);
/// One set to evaluate a model of this config on, as its only validation set: nothing to train on. `tokenizer`: as load_tokenizer() takes it.
TrainingData open_evaluation_data(const Config& config, const std::string& tokenizer, const std::string& path);
/// Random tokens, for benchmarks: no validation, no text.
TrainingData synthetic_data(const Config& config);

struct StepReport {
    Progress progress;  // after the step
    double loss;        // nats per trained token
    double bits_per_byte;
    double grad_norm;   // before clipping; not finite where the step was skipped
    bool skipped = false;  // the gradient overflowed (recipe fp16): nothing was changed
    double lr;
    double seconds, tokens_per_s;
    /// What the step did to the parameters, every train.stats_every steps, else null; until the next step.
    const StepChanges* changes = nullptr;
    double flops;       // of the step, as flops.h counts
};

struct ValidReport {
    std::string name;
    int64_t tokens = 0, bytes = 0;
    double loss = 0;           // nats per token
    double bits_per_byte = 0;  // Σ nats / ln 2 / bytes of the predicted text
};

struct MemoryRow {
    std::string what;
    size_t bytes;
};

class Trainer {
public:
    /// Allocates everything a run needs; draws the initial parameters from train.seed.
    Trainer(const Config& config, const Device& device, TrainingData data);

    /// Begins from the parameters of a checkpoint of a model of the same kind and the same tokenizer, with a fresh optimizer, at step 0.
    void start(const CheckpointInfo& checkpoint);
    /// Continues from a verified checkpoint of the same config.
    void resume(const CheckpointInfo& checkpoint);
    /// One optimizer step over the next global batch. Where the gradient is not finite nothing changes: with recipe fp16 the step is skipped and the loss
    /// scale lowered, otherwise, or where it cannot be lowered, this throws Error.
    StepReport step();
    /// Every validation set, eval_batches micro-batches each (0: all of it), by windows of the context length that do not overlap.
    std::vector<ValidReport> evaluate();
    /// A continuation of `prompt`; the same for the same step and seed.
    std::string sample(const std::string& prompt);
    /// Returns the checkpoint's folder.
    std::string save(const std::string& checkpoints);

    bool validates() const { return !data_.valid.empty(); }
    /// What the steps so far have taken from each training set.
    std::vector<DrawnTokens> drawn() const;
    const Progress& progress() const { return progress_; }
    const ParameterTable& table() const { return table_; }
    const Parameters& parameters() const { return parameters_; }
    /// Arenas, and on the CPU what the process held before they were touched. Where it had held more than all that before, the rest as a row.
    std::vector<MemoryRow> memory() const;

private:
    Config config_;
    TrainingData data_;
    Context ctx_;
    Arena parameter_arena_, gradient_arena_, optimizer_arena_, activation_arena_, generation_arena_, workspace_arena_;
    ParameterTable table_;
    Parameters parameters_;
    Model model_;
    std::unique_ptr<Generator> generator_;
    Tensor ids_, targets_, square_sum_, grad_scale_, workspace_;
    Tensor losses_;                             // (global_batch, context) f32: of all micro-batches of a step
    std::unique_ptr<Loader> loader_;
    std::vector<float> host_losses_;                  // (global_batch · context)
    std::vector<RowRange> documents_;                 // of the micro-batch
    std::vector<Change> changes_;                     // of each parameter
    StepChanges step_changes_;
    Progress progress_;
    size_t resident_before_ = 0, peak_before_ = 0;

    ExampleOptions example_options() const;
    void require_tokenizer(const CheckpointInfo& checkpoint, const char* remedy) const;
    void upload(const int32_t* ids, const int32_t* targets);
    Tensor losses_of(int64_t first) const;
    LossTotals read_losses(const int32_t* targets, int64_t sequences);
    void forward_losses(const int32_t* ids, const int32_t* targets, float* losses);
    void forward_backward(const Batch& batch);
    bool adapt_loss_scale(bool overflow);
    void add_to_low_sums(bool first);
};

/// Bytes of this process in memory now, and at most so far.
size_t resident_bytes();
size_t peak_resident_bytes();

}  // namespace clover
