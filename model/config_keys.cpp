#include "config_keys.h"

#include <algorithm>

#include "presets.h"

namespace clover::config {
namespace {

// ---- The table -----------------------------------------------------------------------------------------------------------------

constexpr Default fixed(const char* value) { return {value, value, nullptr, false}; }
constexpr Default by_family(const char* bloom, const char* gopher) { return {bloom, gopher, nullptr, false}; }
constexpr Default derived(const char* words) { return {nullptr, nullptr, words, false}; }
constexpr Default required(const char* words) { return {nullptr, nullptr, words, true}; }

// The order of each list is that of the enum.
constexpr std::string_view norm_spellings[] = {"layernorm", "rmsnorm"};
constexpr std::string_view position_spellings[] = {"alibi", "relative", "learned", "sinusoidal"};
constexpr std::string_view bias_spellings[] = {"all", "output", "none"};
constexpr std::string_view init_spellings[] = {"normal", "xavier", "fan_in"};
constexpr std::string_view recipe_spellings[] = {"fp32", "mixed", "bf16", "bf16-sr", "bf16-master-sr", "bf16-master", "fp16"};
constexpr std::string_view storage_spellings[] = {"f32", "bf16"};
constexpr std::string_view only_spellings[] = {"all", "embedding", "gains", "biases", "matrices"};
constexpr std::string_view schedule_spellings[] = {"cosine-samples", "cosine-steps", "linear-samples", "linear-steps", "constant"};
constexpr std::string_view optimizer_spellings[] = {"adamw", "adam", "adafactor"};
constexpr std::string_view order_spellings[] = {"megatron", "epochs"};

const std::vector<std::string_view>& presets_or_none() {
    static const std::vector<std::string_view> names = [] {
        std::vector<std::string_view> all = preset_names();
        all.insert(all.begin(), "");
        return all;
    }();
    return names;
}

#define AT(member) [](Config & c) -> auto& { return c.member; }
#define ENUM_AT(member) [](Config & c) -> unsigned char& { return reinterpret_cast<unsigned char&>(c.member); }

std::vector<Key> make_keys() {
    return {
        {"model", "family", Word{AT(model.family), families()}, derived("the preset's, required without one"),
         "whose architecture and training defaults", "architecture arch type"},
        {"model", "preset", Word{AT(model.preset), presets_or_none()}, fixed("''"),
         "a published size: its shape and training settings", "size name"},
        {"model", "layers", Integer{AT(model.layers), 1, 1 << 14}, required("the preset's"),
         "transformer blocks", "n_layer n_layers num_layers num_hidden_layers depth"},
        {"model", "hidden", Integer{AT(model.hidden), 1, 1 << 20}, required("the preset's"),
         "width of the residual stream", "d_model n_embd hidden_size dim width"},
        {"model", "heads", Integer{AT(model.heads), 1, 1 << 14}, required("the preset's"),
         "attention heads", "n_head n_heads num_heads num_attention_heads"},
        {"model", "head_size", Integer{AT(model.head_size), 1, 1 << 20}, derived("hidden / heads"),
         "width of one head", "head_dim kv_channels d_head"},
        {"model", "ffn", Integer{AT(model.ffn), 1, 1 << 22}, derived("4 * hidden"),
         "width of the feed-forward layer", "d_ff ffn_hidden_size intermediate_size ffn_size"},
        {"model", "vocab", Integer{AT(model.vocab), 1, 1 << 24}, by_family("250880", "32000"),
         "rows of the token embedding", "vocab_size n_vocab padded_vocab_size"},
        {"model", "context", Integer{AT(model.context), 1, 1 << 20}, fixed("2048"),
         "positions of a training sequence", "seq_length seq_len sequence_length block_size n_ctx context_length"},
        {"model", "norm", Choice{ENUM_AT(model.norm), norm_spellings}, by_family("'layernorm'", "'rmsnorm'"),
         "normalisation before each sub-layer", "normalization norm_type"},
        {"model", "position", Choice{ENUM_AT(model.position), position_spellings}, by_family("'alibi'", "'relative'"),
         "how attention knows positions", "position_embedding positional_encoding"},
        {"model", "embedding_norm", Boolean{AT(model.embedding_norm)}, by_family("true", "false"),
         "a norm right after the token embedding", "embed_layernorm"},
        {"model", "bias", Choice{ENUM_AT(model.bias), bias_spellings}, by_family("'all'", "'output'"),
         "linear layers with a bias: all, attention output and feed-forward, none", "biases"},
        {"model", "tie_embeddings", Boolean{AT(model.tie_embeddings)}, fixed("true"),
         "one matrix for embedding and logits", "tie_word_embeddings tied"},
        {"model", "norm_eps", Number{AT(model.norm_eps), 0, 1, false, true}, fixed("1e-5"),
         "added to the variance in the norms", "layer_norm_epsilon layernorm_epsilon"},
        {"model", "init", Choice{ENUM_AT(model.init), init_spellings}, fixed("'normal'"),
         "initialisation: N(0, init_std), the same with a Xavier embedding, N(0, 1 / inputs)", "initialization init_method"},
        {"model", "init_std", Number{AT(model.init_std), 0, 10, false, true}, by_family("0.0048", "0.02"),
         "standard deviation of init normal and xavier", "init_method_std initializer_range"},

        {"data", "train", Sources{AT(data.train)}, fixed("[]"),
         "training text: .txt, .jsonl, .gz, a folder of them, or the prefix of a .bin/.idx pair; weight: share of the mixture, by default the size; range: part of its documents",
         "train_data data_path training"},
        {"data", "valid", Sources{AT(data.valid)}, fixed("[]"),
         "validation text, likewise", "val valid_data validation eval"},
        {"data", "weights", Text{AT(data.weights), true}, fixed("''"),
         "TOML file of weights by name for the sets of train, such as configs/weights-roots.toml", "mixture blend ratios"},
        {"data", "split", Split{AT(data.split)}, fixed("[]"),
         "take validation (and a test part, left alone) from the end of each set of train, as Megatron's --split", "splits train_valid_test_split"},
        {"data", "order", Choice{ENUM_AT(data.order), order_spellings}, fixed("'megatron'"),
         "megatron: Megatron-DeepSpeed's, all epochs but the last shuffled as one; epochs: each epoch for itself", "shuffle sample_order"},
        {"data", "tokenizer", Text{AT(data.tokenizer)}, fixed("'bytes'"),
         "bytes (every byte is a token), or the path of a tokenizer.json or SentencePiece .model", "tokenizer_file vocab_file tokenizer_path"},
        {"data", "end_of_document", Text{AT(data.end_of_document), true}, fixed("''"),
         "the token that ends a document; '': the tokenizer's </s>, <|endoftext|> or the like", "eod eos eos_token eod_token"},
        {"data", "train_on_eod", Boolean{AT(data.train_on_eod)}, fixed("true"),
         "the end of a document is to be predicted", ""},
        {"data", "train_after_eod", Boolean{AT(data.train_after_eod)}, fixed("true"),
         "the first token of a document is to be predicted from the end of the one before; false: Megatron's --eod-mask-loss", "eod_mask_loss"},
        {"data", "reset_attention", Boolean{AT(data.reset_attention)}, fixed("false"),
         "attention does not cross the end of a document", "reset_attention_mask"},
        {"data", "reset_positions", Boolean{AT(data.reset_positions)}, fixed("false"),
         "positions begin anew after the end of a document (learned and sinusoidal ones)", "reset_position_ids"},
        {"data", "cache", Text{AT(data.cache)}, fixed("'.clover-cache'"),
         "folder where text is tokenised to", "cache_dir"},

        {"train", "steps", Integer{AT(train.steps), 1, most_steps}, required("the preset's"),
         "optimizer steps of the run", "train_iters max_steps num_steps iterations max_iters"},
        {"train", "micro_batch", Integer{AT(train.micro_batch), 1, 1 << 20}, fixed("1"),
         "sequences that go through the model at once", "micro_batch_size device_batch_size"},
        {"train", "global_batch", Integer{AT(train.global_batch), 1, most_steps}, derived("micro_batch"),
         "sequences per step", "global_batch_size batch_size batch total_batch_size"},
        {"train", "ramp_up", Ramp{AT(train.ramp_up)}, fixed("[]"),
         "[start, increment, samples]: grow the batch from start to global_batch over so many samples; [half, half, samples] doubles it once, after them (Gopher 280B)", "rampup_batch_size ramp rampup"},
        {"train", "seed", Integer{AT(train.seed), 0, UINT32_MAX}, fixed("42"),
         "of initialisation, data order and rounding", "random_seed rng_seed"},
        {"train", "eval_every", Integer{AT(train.eval_every), 0, most_steps}, fixed("0"),
         "steps between validations; 0: only at the end", "eval_interval val_every val_check_interval"},
        {"train", "eval_batches", Integer{AT(train.eval_batches), 0, most_steps}, fixed("8"),
         "micro-batches of each validation set; 0: all of it", "eval_iters val_batches"},
        {"train", "sample_every", Integer{AT(train.sample_every), 0, most_steps}, fixed("0"),
         "steps between sampled texts; 0: never", "sample_interval generate_every"},
        {"train", "sample_tokens", Integer{AT(train.sample_tokens), 1, 1 << 20}, fixed("128"),
         "length of a sampled text", "max_new_tokens"},
        {"train", "sample_prompts", Prompts{AT(train.sample_prompts)}, fixed("[]"),
         "beginnings of the sampled texts", "prompts sample_prompt"},
        {"train", "log_every", Integer{AT(train.log_every), 1, most_steps}, fixed("1"),
         "steps between printed lines", "log_interval logging_steps"},
        {"train", "record_every", Integer{AT(train.record_every), 1, most_steps}, fixed("1"),
         "steps between lines of log.jsonl; losses, norms and speeds in it are means over them", ""},
        {"train", "stats_every", Integer{AT(train.stats_every), 0, most_steps}, fixed("0"),
         "steps between counts of what a step changed: fraction of parameters that kept their stored value, size of the update; 0: never", ""},

        {"optimizer", "name", Choice{ENUM_AT(optimizer.name), optimizer_spellings}, by_family("'adamw'", "'adam'"),
         "adamw decays weights, adam does not; adafactor keeps the second moment of a matrix as means of rows and columns", "type optimizer"},
        {"optimizer", "lr", Number{AT(optimizer.lr), 0, 100, false, true}, required("the preset's"),
         "highest learning rate", "learning_rate max_lr peak_lr"},
        {"optimizer", "min_lr", Number{AT(optimizer.min_lr), 0, 100, true, true}, derived("the preset's, else lr / 10"),
         "learning rate after the decay", "min_learning_rate final_lr end_lr"},
        {"optimizer", "start_lr", Number{AT(optimizer.start_lr), 0, 100, true, true}, by_family("0.0", "1e-7"),
         "learning rate where the warm-up begins", "warmup_init_lr initial_lr"},
        {"optimizer", "warmup", Integer{AT(optimizer.warmup), 0, most_samples}, by_family("0", "1500"),
         "length of the warm-up, in samples or steps as the schedule counts", "warmup_steps lr_warmup_samples lr_warmup_iters warmup_iters warmup_samples"},
        {"optimizer", "decay", Integer{AT(optimizer.decay), 0, most_samples}, fixed("0"),
         "where the decay ends, from the start of the run; 0: at the end of the run", "decay_steps lr_decay_samples lr_decay_iters decay_samples"},
        {"optimizer", "schedule", Choice{ENUM_AT(optimizer.schedule), schedule_spellings}, by_family("'cosine-samples'", "'cosine-steps'"),
         "after the warm-up a cosine or a line down to min_lr, counted in samples (BLOOM: cosine-samples) or steps (Gopher: cosine-steps), or constant", "lr_decay_style scheduler lr_scheduler"},
        {"optimizer", "beta1", Number{AT(optimizer.beta1), 0, 1, true, false}, fixed("0.9"),
         "Adam's decay of the mean gradient; adafactor's, with momentum, of the mean update", "adam_beta1"},
        {"optimizer", "beta2", Number{AT(optimizer.beta2), 0, 1, true, false}, fixed("0.95"),
         "Adam's decay of the mean squared gradient", "adam_beta2"},
        {"optimizer", "eps", Number{AT(optimizer.eps), 0, 1, false, true}, fixed("1e-8"),
         "added to Adam's denominator", "adam_eps epsilon"},
        {"optimizer", "weight_decay", Number{AT(optimizer.weight_decay), 0, 10, true, true}, by_family("0.1", "0.0"),
         "decoupled weight decay of the matrices (adamw, adafactor)", "wd"},
        {"optimizer", "clip", Number{AT(optimizer.clip), 0, 1e6, true, true}, fixed("1.0"),
         "largest global gradient norm; 0: no clipping", "clip_grad grad_clip max_grad_norm gradient_clip"},
        {"optimizer", "relative_step", Boolean{AT(optimizer.relative_step)}, fixed("false"),
         "adafactor: the learning rate is min(0.01, 1 / √step), and not lr and its schedule", ""},
        {"optimizer", "parameter_scale", Boolean{AT(optimizer.parameter_scale)}, fixed("false"),
         "adafactor: the learning rate is times the root mean square of each parameter, or 0.001 if that is more", "multiply_by_parameter_scale scale_parameter"},
        {"optimizer", "momentum", Boolean{AT(optimizer.momentum)}, fixed("false"),
         "adafactor: keep a mean of the updates", ""},
        {"optimizer", "update_clip", Number{AT(optimizer.update_clip), 0, 1e6, false, true}, fixed("1.0"),
         "adafactor: largest root mean square of a parameter's update, before the learning rate", "clip_threshold clipping_threshold"},
        {"optimizer", "decay_exponent", Number{AT(optimizer.decay_exponent), 0, 1, false, true}, fixed("0.8"),
         "adafactor: the second moment decays by 1 - step ^ -decay_exponent", "decay_rate decay_pow"},
        {"optimizer", "min_factored", Integer{AT(optimizer.min_factored), 0, 1 << 24}, fixed("128"),
         "adafactor: smaller sides keep a matrix whole; 0: none does", "min_dim_size_to_factor"},

        {"precision", "recipe", Choice{ENUM_AT(precision.recipe), recipe_spellings}, by_family("'bf16-master'", "'mixed'"),
         "dtypes of parameters, activations and the optimizer's copy, and how updates are rounded (optim/recipe.h)", "precision dtype bf16 fp16"},
        {"precision", "accumulate", Choice{ENUM_AT(precision.accumulate), storage_spellings}, fixed("'f32'"),
         "sums of gradients over micro-batches", "grad_accum_dtype accumulation accumulate_allreduce_grads_in_fp32"},
        {"precision", "reduce", Choice{ENUM_AT(precision.reduce), storage_spellings}, fixed("'f32'"),
         "gradients on their way between data-parallel ranks (with one rank they are rounded all the same)", "communication_data_type reduce_dtype"},
        {"precision", "moments", Choice{ENUM_AT(precision.moments), storage_spellings}, fixed("'f32'"),
         "Adam's moments", "optimizer_dtype moment_dtype state_dtype"},
        {"precision", "loss_scale", Number{AT(precision.loss_scale.initial), 1, 0x1p24, true, true}, fixed("4096.0"),
         "first loss scale of recipe fp16; it adapts (optim/loss_scale.h)", "initial_loss_scale initial_scale_power"},
        {"precision", "loss_scale_window", Integer{AT(precision.loss_scale.window), 1, most_steps}, fixed("500"),
         "steps without overflow after which it doubles", "loss_scale_window scale_window"},
        {"precision", "loss_scale_hysteresis", Integer{AT(precision.loss_scale.hysteresis), 1, 1000}, fixed("2"),
         "overflows after which it halves", "hysteresis delayed_shift"},
        {"precision", "only", Choice{ENUM_AT(precision.only), only_spellings}, fixed("'all'"),
         "the class of parameters that recipe bf16 or bf16-sr is for; the others follow bf16-master-sr", "class"},

        {"checkpoint", "every", Integer{AT(checkpoint.every), 0, most_steps}, fixed("1000"),
         "steps between checkpoints; 0: only at the end and on Ctrl-C", "save_interval save_every checkpoint_every"},
        {"checkpoint", "keep", Integer{AT(checkpoint.keep), 0, most_steps}, fixed("3"),
         "newest checkpoints to keep; 0: all", "keep_last save_total_limit"},
        {"checkpoint", "start", Text{AT(checkpoint.start), true}, fixed("''"),
         "run folder or checkpoint whose parameters a new run begins from, with a fresh optimizer at step 0 (fine-tuning); '': drawn from train.seed", "finetune load pretrained init_from"},
    };
}
#undef AT
#undef ENUM_AT

// ---- What a key expects, in words ----------------------------------------------------------------------------------------------

/// 0.5 as "0.5" and 3.0 as "3", as one says it.
std::string plain(double x) { return text(x); }

std::string expected(const Integer& b) {
    return b.most == INT64_MAX ? text("an integer of at least ", b.least) : text("an integer from ", b.least, " to ", b.most);
}
std::string expected(const Number& b) {
    return text("a number ", b.least_itself ? "of at least " : "above ", plain(b.least), b.most_itself ? " and at most " : " and below ", plain(b.most));
}
std::string expected(const Boolean&) { return "true or false"; }
std::string expected(const Text&) { return "a string"; }
std::string expected(const Word& b) { return "one of " + joined(b.words); }
std::string expected(const Choice& b) { return "one of " + joined(b.spellings); }
std::string expected(const Prompts&) { return "a list of strings"; }
std::string expected(const Ramp&) { return "[] or [start, increment, samples], three integers of at least 1"; }
std::string expected(const Sources&) { return "a path, a list of paths, or a list of {path, weight, name, range}"; }
std::string expected(const Split&) { return "[] or [train, valid, test], three numbers of at least 0"; }

}  // namespace

std::string expected(const Key& key) {
    return std::visit([](const auto& b) { return expected(b); }, key.binding);
}

// ---- Looking things up ---------------------------------------------------------------------------------------------------------

const std::vector<std::string_view>& families() {
    static const std::vector<std::string_view> names = {"bloom", "gopher"};
    return names;
}

const std::vector<Key>& keys() {
    static const std::vector<Key> table = make_keys();
    return table;
}

const Key* find_key(std::string_view section, std::string_view name) {
    for (const Key& key : keys())
        if (key.section == section && key.name == name) return &key;
    return nullptr;
}

bool is_section(std::string_view name) {
    return std::any_of(keys().begin(), keys().end(), [&](const Key& key) { return key.section == name; });
}

}  // namespace clover::config

namespace clover {

using namespace config;

std::string config_reference() {
    std::string lines;
    for (const Key& key : keys()) {
        const Default& f = key.fallback;
        const bool same = !f.words && std::string_view(f.bloom) == f.gopher;
        const std::string value = f.required ? text("required, or ", f.words)
                                  : f.words  ? text("default: ", f.words)
                                  : same     ? text("default: ", f.bloom)
                                             : text("default: ", f.bloom, " (bloom), ", f.gopher, " (gopher)");
        lines += text(key.dotted(), ": ", expected(key), "; ", value, "; ", key.help, "\n");
    }
    return lines;
}

std::string to_string(Position p) { return std::string(position_spellings[size_t(p)]); }
std::string to_string(NormKind n) { return std::string(norm_spellings[size_t(n)]); }
std::string to_string(Bias b) { return std::string(bias_spellings[size_t(b)]); }
std::string to_string(Init i) { return std::string(init_spellings[size_t(i)]); }
std::string to_string(Recipe r) { return std::string(recipe_spellings[size_t(r)]); }
std::string to_string(ParameterClass c) { return std::string(only_spellings[size_t(c) + 1]); }
std::string to_string(Schedule s) { return std::string(schedule_spellings[size_t(s)]); }
std::string to_string(OptimizerName n) { return std::string(optimizer_spellings[size_t(n)]); }
std::string to_string(SampleOrder o) { return std::string(order_spellings[size_t(o)]); }

}  // namespace clover
