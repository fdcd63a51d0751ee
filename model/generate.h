// Generation: one token at a time from a prompt, with a cache of keys and values for either position scheme.
#pragma once
#include <functional>
#include <vector>

#include "checkpoint.h"
#include "model.h"

namespace clover {

struct Sampling {
    double temperature = 1;  // 0: always the most likely token
    int64_t top_k = 0;       // keep the k most likely; 0: all
    double top_p = 1;        // of those, keep the smallest set that holds this much probability
    uint64_t seed = 0;
};

/// Draws from softmax(logits / temperature) cut down by top_k, then top_p. `draw` numbers the draws of one seed. Ties go to the
/// lower id. `order` is scratch.
int32_t sample_token(const float* logits, int64_t vocab, const Sampling& sampling, uint64_t draw, std::vector<int32_t>& order);

class Generator {
public:
    /// capacity: tokens of prompt and continuation together. Throws InputError where learned positions are fewer.
    Generator(const ModelConfig& config, const Parameters& parameters, int64_t capacity, Arena& arena);
    void prepare(Context& ctx) { model_.prepare(ctx); }
    size_t workspace_bytes(Context& ctx) const { return model_.workspace_bytes(ctx); }

    /// Calls token(id) for each new token until it returns false or `count` are made or the capacity is full. The prompt must not be empty.
    void generate(Context& ctx, const std::vector<int32_t>& prompt, int64_t count, const Sampling& sampling,
                  const std::function<bool(int32_t)>& token);
    /// The logits (V) after the first `prompt` tokens of a text, then after each further one, fed one at a time; each to `row`.
    void cached_logits(Context& ctx, const std::vector<int32_t>& text, int64_t prompt, const std::function<void(const float*)>& row);

private:
    static constexpr int64_t chunk = 32;  // prompt tokens taken in one forward pass
    int64_t capacity_, vocab_;
    Model model_;
    Tensor ids_, past_, logits_;
    std::vector<float> host_logits_;
    std::vector<int32_t> order_;
    int64_t cached_ = 0;

    void feed(Context& ctx, const int32_t* ids, int64_t count);
    const float* last_logits(Context& ctx, int64_t row);
    int64_t feed_prompt(Context& ctx, const std::vector<int32_t>& prompt);
};

/// A checkpoint's model in memory, ready to generate: parameters, arenas and context.
class LoadedModel {
public:
    LoadedModel(const CheckpointInfo& checkpoint, const Device& device, int64_t capacity);
    Generator& generator() { return generator_; }
    Context& context() { return ctx_; }

private:
    Config config_;
    Context ctx_;
    Arena parameter_arena_, unused_, activation_arena_, workspace_arena_;
    ParameterTable table_;
    Parameters parameters_;
    Generator generator_;
    Tensor workspace_;
};

}  // namespace clover
