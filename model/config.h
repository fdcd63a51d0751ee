// The configuration of a run: one TOML file (sections and keys below), `--set section.key=value` on top, defaults from
// model.family and model.preset beneath. One table in config_keys.cpp binds each key to its member, range, default and help line;
// reading, errors, the printout and the README's reference all come from it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "../data/sample_sequence.h"
#include "../kernels/norm.h"
#include "../optim/recipe.h"
#include "../optim/schedule.h"

namespace clover {

enum class Position : uint8_t { alibi, relative, learned, sinusoidal };
/// Which linear layers have a bias: all (BLOOM), output = attention output and feed-forward only (the fit of Gopher's
/// published sizes, facts/gopher.md 1.4), none.
enum class Bias : uint8_t { all, output, none };
/// normal: N(0, init_std), residual projections N(0, init_std / √(2·layers)) (GPT-2, Megatron; BLOOM with 0.0048).
/// xavier: as normal, but the token embedding is uniform(±√(6 / (vocab + hidden))) (StableEmbedding).
/// fan_in: N(0, 1 / inputs), residual projections further divided by √(2·layers); embedding N(0, 1 / hidden).
enum class Init : uint8_t { normal, xavier, fan_in };
enum class OptimizerName : uint8_t { adamw, adam, adafactor };

struct ModelConfig {
    std::string family;  // bloom | gopher
    std::string preset;  // a published size such as bloom-560m or gopher-417m, or empty
    int64_t layers = 0, hidden = 0, heads = 0, head_size = 0, ffn = 0, vocab = 0, context = 0;
    NormKind norm = NormKind::layernorm;
    Position position = Position::alibi;
    bool embedding_norm = false;
    Bias bias = Bias::all;
    bool tie_embeddings = true;
    double norm_eps = 1e-5;
    Init init = Init::normal;
    double init_std = 0;
};

struct DataSource {
    std::string path;   // prefix of a .bin/.idx pair, or a text (.txt), JSONL or .gz file
    std::string name;   // shown in tables and logs; by default the last part of the path
    double weight = 0;  // share of the mixture, normalised over the list; 0: by the number of tokens
    double from = 0, to = 1;  // the part of its documents that is used
};

struct DataConfig {
    std::vector<DataSource> train, valid;
    std::vector<double> split;  // shares of train, valid, test of each set of `train`, or empty
    SampleOrder order = SampleOrder::megatron;
    std::string tokenizer = "bytes";
    std::string end_of_document;  // the token that ends a document; "": the tokenizer's own
    bool train_on_eod = true, train_after_eod = true;
    bool reset_attention = false, reset_positions = false;
    std::string weights;  // file of weights by name, already looked up in a finished config, where it is ""
    std::string cache;  // where text files are tokenised to
};

struct TrainConfig {
    int64_t steps = 0, micro_batch = 0, global_batch = 0;
    RampUp ramp_up;
    int64_t seed = 0;
    int64_t eval_every = 0, eval_batches = 0, sample_every = 0, sample_tokens = 0, log_every = 1, record_every = 1, stats_every = 0;
    std::vector<std::string> sample_prompts;
};

struct OptimizerConfig {
    OptimizerName name = OptimizerName::adamw;
    double lr = 0, min_lr = 0, start_lr = 0;
    int64_t warmup = 0, decay = 0;  // in the unit of the schedule; decay counts from the start of the run, 0: the whole run
    Schedule schedule = Schedule::cosine_samples;
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1.0;
    // Of adafactor (kernels/adafactor.h).
    bool relative_step = false, parameter_scale = false, momentum = false;
    double update_clip = 1.0, decay_exponent = 0.8;
    int64_t min_factored = 128;
};

struct CheckpointConfig {
    int64_t every = 0, keep = 0;
    std::string start;  // a run or checkpoint whose parameters a new run begins from, or ""
};

struct Config {
    ModelConfig model;
    DataConfig data;
    TrainConfig train;
    OptimizerConfig optimizer;
    PrecisionConfig precision;
    CheckpointConfig checkpoint;
};

/// Reads a TOML file, applies `section.key=value` overrides in order, fills defaults, checks every value and combination.
/// Throws InputError: one line with file:line (or the override), the key, what was expected, and a suggestion for a misspelt key.
Config read_config(const std::string& path, const std::vector<std::string>& overrides);
/// The same from text; `origin` stands in messages where the file name would.
Config parse_config(const std::string& toml, const std::string& origin, const std::vector<std::string>& overrides);
/// Values that may stand but can hardly be meant, one line each, such as a warm-up longer than the run.
std::vector<std::string> config_warnings(const Config& config);
/// The resolved config as TOML that reads back to the same values.
std::string to_toml(const Config& config);
/// One line per key: section.key, type and range, default, meaning. For `clover train --help` and the README.
std::string config_reference();

/// The spelling used in config files.
std::string to_string(Position);
std::string to_string(NormKind);
std::string to_string(Bias);
std::string to_string(Init);
std::string to_string(Recipe);
std::string to_string(ParameterClass);
std::string to_string(Schedule);
std::string to_string(OptimizerName);
std::string to_string(SampleOrder);

}  // namespace clover
