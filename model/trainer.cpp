#include "trainer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "continuation.h"
#include "flops.h"
#include "update.h"

namespace clover {
namespace {

LearningRate learning_rate_of(const Config& c) {
    const OptimizerConfig& o = c.optimizer;
    int64_t decay = o.decay;
    if (decay == 0)
        decay = counts_samples(o.schedule) ? samples_after(c.train.ramp_up, c.train.global_batch, c.train.steps) : c.train.steps;
    return {o.schedule, o.lr, o.min_lr, o.start_lr, o.warmup, decay};
}

// Whether documents are kept apart in any way that the model must know of.
bool resets(const DataConfig& data) { return data.reset_attention || data.reset_positions; }

int64_t longest_prompt(const Config& c, const TrainingData& data) {
    size_t most = 1;
    for (const std::string& prompt : c.train.sample_prompts) {
        std::vector<int32_t> ids;
        data.tokenizer->encode(prompt, ids);
        most = std::max(most, ids.size());
    }
    return int64_t(most);
}

}  // namespace

Trainer::Trainer(const Config& config, const Device& device, TrainingData data)
    : config_(config), data_(std::move(data)), ctx_(device),
      parameter_arena_(device, "parameters"), gradient_arena_(device, "gradients"), optimizer_arena_(device, "optimizer"),
      activation_arena_(device, "activations", false), generation_arena_(device, "generation", false), workspace_arena_(device, "workspace", false),
      table_(config_.model), parameters_(table_, config_, true, parameter_arena_, gradient_arena_, optimizer_arena_),
      model_(config_.model, parameters_, {.batch = config_.train.micro_batch, .sequence = config_.model.context, .training = true, .documents = resets(config_.data)}, activation_arena_) {
    const int64_t b = config_.train.micro_batch, t = config_.model.context, global_batch = config_.train.global_batch;
    activation_arena_.place(ids_, Dtype::i32, {b * t});
    activation_arena_.place(targets_, Dtype::i32, {b * t});
    activation_arena_.place(losses_, Dtype::f32, {global_batch, t});
    optimizer_arena_.place(square_sum_, Dtype::f32, {1});
    optimizer_arena_.place(grad_scale_, Dtype::f32, {1});
    if (!config_.train.sample_prompts.empty())
        generator_ = std::make_unique<Generator>(config_.model, parameters_, longest_prompt(config_, data_) + config_.train.sample_tokens, generation_arena_);
    const size_t workspace = std::max({model_.workspace_bytes(ctx_), generator_ ? generator_->workspace_bytes(ctx_) : 0,
                                       update_workspace_bytes(device, config_, parameters_)});
    workspace_arena_.place(workspace_, Dtype::f32, {int64_t(workspace / sizeof(float)) + 16});
    loader_ = std::make_unique<Loader>(
        data_.read, [ramp = config_.train.ramp_up, global_batch](int64_t consumed) { return global_batch_at(ramp, global_batch, consumed); },
        LoaderOptions{.example = example_options(), .micro_batch = b, .total = samples_after(config_.train.ramp_up, global_batch, config_.train.steps)});
    host_losses_.resize(size_t(global_batch * t));
    changes_.resize(size_t(table_.all().size()));
    if (resets(config_.data)) documents_.reserve(size_t(b * t));
    if (parameters_.precision.scales_loss()) progress_.loss_scale = LossScale(config_.precision.loss_scale);
    resident_before_ = resident_bytes(), peak_before_ = peak_resident_bytes();

    commit_together(device, {&parameter_arena_, &gradient_arena_, &optimizer_arena_, &activation_arena_, &generation_arena_, &workspace_arena_});
    ctx_.workspace.base = workspace_.data;
    ctx_.workspace.size = workspace_.bytes();
    model_.prepare(ctx_);
    if (generator_) generator_->prepare(ctx_);
    parameters_.initialise(ctx_, config_.model, uint64_t(config_.train.seed));
}

void Trainer::start(const CheckpointInfo& checkpoint) {
    require_tokenizer(checkpoint, "use that tokenizer in data.tokenizer");
    require_same_model(checkpoint.folder, checkpoint.config, config_);
    load_parameters(ctx_, checkpoint, parameters_, false);
}

void Trainer::require_tokenizer(const CheckpointInfo& checkpoint, const char* remedy) const {
    const std::string tokenizer = data_.tokenizer ? data_.tokenizer->fingerprint() : "";
    require(checkpoint.tokenizer == tokenizer, checkpoint.folder, ": made with tokenizer ", checkpoint.tokenizer, ", the data with ", tokenizer, "; ", remedy);
}

void Trainer::resume(const CheckpointInfo& checkpoint) {
    require_tokenizer(checkpoint, "use the data of that run, or choose another --out");
    require(checkpoint.data.empty() || checkpoint.data == data_.fingerprint, checkpoint.folder, ": made with other training data: its sets had other numbers of documents ",
            "or tokens (", checkpoint.data, ", now ", data_.fingerprint, "); put the data back, or begin a new run in another --out");
    const TrainConfig& had = checkpoint.config.train;
    const int64_t total = samples_after(had.ramp_up, had.global_batch, had.steps);
    require(checkpoint.progress.step == 0 || !data_.same_order || data_.same_order(total), "train.steps = ", config_.train.steps, ": ", checkpoint.folder,
            " is of a run of ", had.steps, " steps, whose samples came in another order (data.order = \"megatron\" shuffles all epochs that a run takes as one), ",
            "so samples would be seen twice and others not at all; keep train.steps, or begin such runs with data.order = \"epochs\"");
    load_parameters(ctx_, checkpoint, parameters_, true);
    progress_ = checkpoint.progress;
    loader_->seek(progress_.samples);
}

ExampleOptions Trainer::example_options() const {
    return {.context = config_.model.context, .end_of_document = data_.end_of_document, .train_on_eod = config_.data.train_on_eod,
            .train_after_eod = config_.data.train_after_eod};
}

// All work of the step is asked for first; the device is waited for once, when its losses and its norm are read.
StepReport Trainer::step() {
    const auto start = std::chrono::steady_clock::now();
    const Batch& batch = loader_->next();
    CLOVER_CHECK(batch.first == progress_.samples, "batch ", batch.first, " at sample ", progress_.samples);
    const int64_t global_batch = batch.global_batch;
    const double lr = config_.optimizer.relative_step ? adafactor_relative_step(progress_.step + 1 - progress_.loss_scale.skipped)
                                                      : learning_rate(learning_rate_of(config_), progress_.step + 1, progress_.samples);

    forward_backward(batch);
    ctx_.device.elementwise.sum_of_squares(ctx_, square_sum_, parameters_.grad);
    ctx_.device.elementwise.clip_factor(ctx_, grad_scale_, square_sum_, float(config_.optimizer.clip), float(progress_.loss_scale.value));
    const bool wants_changes = config_.train.stats_every > 0 && (progress_.step + 1) % config_.train.stats_every == 0;
    update(ctx_, config_, parameters_, {.grad_scale = grad_scale_, .lr = lr, .step = progress_.step + 1, .updates = progress_.step + 1 - progress_.loss_scale.skipped, .changes = wants_changes});

    const LossTotals totals = read_losses(batch.targets.data(), batch.sequences);
    float squares;
    ctx_.device.memory.to_host(ctx_, &squares, square_sum_.data, sizeof squares);
    const double norm = std::sqrt(double(squares)) / progress_.loss_scale.value;
    const bool skipped = !std::isfinite(norm);  // then the update has changed nothing
    if (!adapt_loss_scale(skipped))
        throw Error(text("step ", progress_.step + 1, ": the gradient norm is not finite (loss ", totals.nats / double(totals.tokens),
                         "), the run cannot go on; start another with a lower optimizer.lr or another train.seed in its own --out"));

    if (wants_changes) {
        ctx_.device.memory.to_host(ctx_, changes_.data(), parameters_.changes.data, parameters_.changes.bytes());
        gather(table_, changes_, step_changes_);
    }
    progress_.step++, progress_.samples += global_batch, progress_.tokens += global_batch * config_.model.context;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return {.progress = progress_,
            .loss = totals.nats / double(totals.tokens),
            .bits_per_byte = totals.nats / std::log(2.0) / double(totals.bytes),
            .grad_norm = norm,
            .skipped = skipped,
            .lr = lr,
            .seconds = seconds,
            .tokens_per_s = double(global_batch * config_.model.context) / seconds,
            .changes = wants_changes ? &step_changes_ : nullptr,
            .flops = training_flops(config_.model, config_.train.micro_batch, config_.model.context) * double(global_batch / config_.train.micro_batch)};
}

// Forward and backward of every micro-batch of the step; the gradients add up in f32. The loss is the mean over the trained
// tokens of the whole global batch, however it is cut, so their number must be known before the first backward.
void Trainer::forward_backward(const Batch& batch) {
    const int64_t t = config_.model.context, micro = config_.train.micro_batch;
    const int64_t trained = std::count_if(batch.targets.begin(), batch.targets.end(), [](int32_t id) { return id >= 0; });
    const float scale = float(progress_.loss_scale.value) / float(std::max<int64_t>(trained, 1));

    const bool low_sums = config_.precision.accumulate == Storage::bf16;
    for (int64_t first = 0; first < batch.sequences; first += micro) {
        const bool fresh = first == 0 || low_sums;
        if (fresh) model_.zero_gradients(ctx_);
        upload(batch.ids.data() + first * t, batch.targets.data() + first * t);
        model_.forward(ctx_, ids_);
        model_.loss_backward(ctx_, losses_of(first), targets_, scale, fresh);
        model_.backward(ctx_, ids_, fresh);
        if (low_sums) add_to_low_sums(first == 0);
    }
    if (!parameters_.low_grad.present()) return;
    // In bf16 as the ranks exchange them, or as they were summed.
    if (!low_sums) ctx_.device.elementwise.cast(ctx_, parameters_.low_grad, parameters_.grad);
    ctx_.device.elementwise.cast(ctx_, parameters_.grad, parameters_.low_grad);
}

// False where the run cannot go on.
bool Trainer::adapt_loss_scale(bool overflow) {
    if (!parameters_.precision.scales_loss()) return !overflow;
    LossScale& scale = progress_.loss_scale;
    if (!overflow) return scale.step(config_.precision.loss_scale), true;
    if (scale.value <= LossScaleConfig::least && scale.patience == 0) return false;
    return scale.overflow(), true;
}

void Trainer::add_to_low_sums(bool first) {
    const ElementwiseOps& k = ctx_.device.elementwise;
    if (first) return k.cast(ctx_, parameters_.low_grad, parameters_.grad);
    k.add(ctx_, parameters_.low_grad, parameters_.low_grad, parameters_.grad);
}

// A micro-batch to the device, and its documents to the model.
void Trainer::upload(const int32_t* ids, const int32_t* targets) {
    ctx_.device.memory.from_host(ctx_, ids_.data, ids, ids_.bytes());
    ctx_.device.memory.from_host(ctx_, targets_.data, targets, targets_.bytes());
    if (!resets(config_.data)) return;
    document_rows(ids, ids_.count(), example_options(), documents_);
    model_.set_documents(documents_, config_.data.reset_attention, config_.data.reset_positions);
}
Tensor Trainer::losses_of(int64_t first) const {
    return losses_.row_range(first, config_.train.micro_batch).reshaped({config_.train.micro_batch * config_.model.context});
}

void Trainer::forward_losses(const int32_t* ids, const int32_t* targets, float* losses) {
    upload(ids, targets);
    model_.forward(ctx_, ids_);
    model_.loss(ctx_, losses_of(0), targets_);
    ctx_.device.memory.to_host(ctx_, losses, losses_.data, losses_of(0).bytes());
}

LossTotals Trainer::read_losses(const int32_t* targets, int64_t sequences) {
    ctx_.device.memory.to_host(ctx_, host_losses_.data(), losses_.data, losses_.row_range(0, sequences).bytes());
    LossTotals totals;
    for (size_t i = 0; i < size_t(sequences * config_.model.context); i++)
        if (targets[i] >= 0) totals.add(host_losses_[i], data_.token_bytes[size_t(targets[i])]);
    return totals;
}

std::vector<ValidReport> Trainer::evaluate() {
    std::vector<ValidReport> reports;
    const int64_t t = config_.model.context, micro = config_.train.micro_batch;
    for (const ValidSet& set : data_.valid) {
        const PackedWindows windows(*set.data, t, set.first, set.sequences);
        LossTotals totals;
        score_windows(windows, micro, config_.train.eval_batches > 0 ? config_.train.eval_batches : -1, example_options(),
                      [&](const int32_t* ids, const int32_t* targets, float* losses) { forward_losses(ids, targets, losses); },
                      [&](int64_t, int32_t target, float loss) { totals.add(loss, data_.token_bytes[size_t(target)]); });
        totals.bytes = std::llround(double(totals.bytes) * set.bytes_per_token_byte);
        reports.push_back({set.name, totals.tokens, totals.bytes, totals.nats / double(totals.tokens),
                           totals.nats / std::log(2.0) / double(totals.bytes)});
    }
    return reports;
}

std::vector<DrawnTokens> Trainer::drawn() const { return data_.drawn ? data_.drawn(progress_.samples) : std::vector<DrawnTokens>{}; }

std::string Trainer::sample(const std::string& prompt) {
    CLOVER_CHECK(generator_);
    std::vector<int32_t> ids;
    data_.tokenizer->encode(prompt, ids);
    if (ids.empty()) ids.push_back(std::max(data_.tokenizer->end_of_document(), 0));
    std::string continuation;
    const std::unique_ptr<Decoder> decoder = data_.tokenizer->decoder();
    const Sampling sampling{.temperature = 0.8, .top_k = 0, .top_p = 0.9, .seed = uint64_t(config_.train.seed + progress_.step)};
    generator_->generate(ctx_, ids, config_.train.sample_tokens, sampling, [&](int32_t id) {
        if (id == data_.tokenizer->end_of_document() || id >= data_.tokenizer->vocab_size()) return false;
        decoder->push(id, continuation);
        return true;
    });
    decoder->finish(continuation);
    return continuation;
}

std::string Trainer::save(const std::string& checkpoints) {
    return save_checkpoint(ctx_, checkpoints, config_, parameters_, progress_, data_.tokenizer.get(), data_.fingerprint);
}

std::vector<MemoryRow> Trainer::memory() const {
    std::vector<MemoryRow> rows;
    for (const Arena* arena : {&parameter_arena_, &gradient_arena_, &optimizer_arena_, &activation_arena_, &generation_arena_, &workspace_arena_})
        if (arena->bytes()) rows.push_back({arena->name(), arena->bytes()});
    if (&ctx_.device != &find_device("cpu")) return rows;
    rows.push_back({"program, libraries, data", resident_before_});
    size_t total = 0;
    for (const MemoryRow& row : rows) total += row.bytes;
    if (peak_before_ > total) rows.push_back({"more, for the start alone", peak_before_ - total});
    return rows;
}

size_t resident_bytes() {
    long pages = 0;
    if (FILE* f = std::fopen("/proc/self/statm", "r")) {
        if (std::fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
        std::fclose(f);
    }
    return size_t(pages) * size_t(sysconf(_SC_PAGESIZE));
}

size_t peak_resident_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return size_t(usage.ru_maxrss) * 1024;
}

}  // namespace clover
