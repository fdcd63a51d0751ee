// `clover eval`: how well a trained model predicts a stream of tokens at several context lengths ("train short, test long": Press et al. 2022, ALiBi,
// section 4; Rae et al. 2021, section D.6). Every length predicts the same tokens of the stream, twice: by windows that do not overlap, where the first
// tokens of each window have little before them (the early token curse), and with a stride by windows that slide, which leaves that out.
//
// Loss is in nats per token, perplexity is e^loss, bits per byte are Σ nats / ln 2 over the bytes of the original text.
#pragma once
#include <optional>

#include "checkpoint.h"

namespace clover {

struct EvalOptions {
    std::string data = "";               // prefix of a token file, or text that is tokenised once, as data.valid
    std::vector<int64_t> contexts = {};  // empty: the trained one
    int64_t stride = 0;                  // of the sliding windows; 0: none
    int64_t tokens = 0;                  // to predict; 0: all
    int64_t micro_batch = 0;             // windows at a time; 0: as many as take the tokens of a micro-batch in training
};

/// The mean loss of the tokens that have from … to tokens before them in their window, the one that predicts them included.
struct PositionLoss {
    int64_t from, to, tokens;
    double loss;
};

struct WindowedLoss {
    int64_t tokens, bytes;
    double loss, perplexity, bits_per_byte;
    std::vector<PositionLoss> positions;  // 1, 2, 3–4, 5–8, …: those that hold a token
};

struct LengthReport {
    int64_t context;
    std::string refused;                         // why the model cannot take this length, or ""
    std::optional<WindowedLoss> apart, sliding;  // absent where refused, or no stride is given
};

struct EvalReport {
    std::string checkpoint, data;
    int64_t step, trained_context, stride;
    std::vector<LengthReport> lengths;  // in the order asked for
};

/// Throws InputError for a length beyond the tokens there are, a stride beyond the shortest length, and all that opening a validation set does.
EvalReport evaluate_lengths(const CheckpointInfo& checkpoint, const Device& device, const EvalOptions& options);

/// `positions`: with the losses by position.
std::string to_table(const EvalReport& report, bool positions);
std::string to_json(const EvalReport& report, bool positions);

}  // namespace clover
