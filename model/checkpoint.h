// What a checkpoint holds:
//   config.toml              the resolved config of the run
//   state.json               step, samples and tokens consumed, loss scale, fingerprints of tokenizer and data, format version
//   tokenizer.json or .model the tokenizer, where it is not the built-in one
//   parameters.safetensors   every parameter under its name: what the optimizer adds to, f32 or (recipes bf16, bf16-sr) bf16
//   optimizer.safetensors    m.NAME and v.NAME, f32 (or bf16: precision.moments); of adafactor r.NAME and c.NAME of a factored matrix, v.NAME else
//   manifest.json            size and CRC-32 of each file (checkpoint_directory.h)
// The copies that the forward pass reads follow from the f32 values and the step, and need not be stored.
#pragma once
#include <string>

#include "../data/tokenizer.h"
#include "../optim/loss_scale.h"
#include "parameters.h"

namespace clover {

struct Progress {
    int64_t step = 0;     // steps done
    int64_t samples = 0;  // sequences consumed
    int64_t tokens = 0;   // tokens consumed
    LossScale loss_scale = {};  // of recipe fp16
};

struct CheckpointInfo {
    std::string folder;
    Config config;
    Progress progress;
    std::string tokenizer, data;  // fingerprints
    std::string tokenizer_spec;   // for load_tokenizer(): "bytes", or the file in the folder
};

/// Returns the folder. `tokenizer` may be null (random tokens); `data`: the fingerprint of the training data. Throws Error (disk full, unwritable) with path and reason; then the older checkpoints are untouched.
std::string save_checkpoint(Context& ctx, const std::string& checkpoints, const Config& config, const Parameters& parameters,
                            const Progress& progress, const Tokenizer* tokenizer, const std::string& data);

/// Reads config.toml and state.json of a checkpoint folder after verifying all of it.
CheckpointInfo read_checkpoint(const std::string& folder);

/// Fills the parameters, and the moments if `optimizer`; without, a checkpoint of another recipe will do: its numbers are widened or rounded to nearest. Throws InputError naming file and tensor where shapes differ.
void load_parameters(Context& ctx, const CheckpointInfo& checkpoint, Parameters& parameters, bool optimizer);

}  // namespace clover
