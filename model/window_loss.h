// The loss of a model over a stream of tokens, window by window (data/packed_windows.h): what validation in training and `clover eval` both are.
#pragma once
#include <functional>

#include "../data/examples.h"
#include "../data/packed_windows.h"

namespace clover {

/// What was scored: Σ nats over `tokens` predicted tokens that stand for `bytes` bytes of text.
struct LossTotals {
    double nats = 0;
    int64_t tokens = 0, bytes = 0;
    void add(double loss, int64_t token_bytes) { nats += loss, tokens++, bytes += token_bytes; }
};

/// A micro-batch through the model: ids and targets (B·T), -1 where nothing is predicted, to losses (B·T) in nats. All on the host.
using LossOfBatch = std::function<void(const int32_t* ids, const int32_t* targets, float* losses)>;
/// A token that was predicted: its place in its window (0: after one token), its id, its loss.
using ScoredToken = std::function<void(int64_t position, int32_t target, float loss)>;

/// Runs the first `batches` micro-batches of `batch` windows each (-1: all there are) and tells every predicted token, in the order of the stream.
void score_windows(const PackedWindows& windows, int64_t batch, int64_t batches, const ExampleOptions& example, const LossOfBatch& loss,
                   const ScoredToken& scored);

}  // namespace clover
