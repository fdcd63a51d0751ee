#include "generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../kernels/random.h"

namespace clover {

int32_t sample_token(const float* logits, int64_t vocab, const Sampling& s, uint64_t draw, std::vector<int32_t>& order) {
    const auto likelier = [&](int32_t a, int32_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); };
    order.resize(size_t(vocab));
    std::iota(order.begin(), order.end(), 0);
    if (s.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
    const int64_t k = s.top_k > 0 ? std::min(s.top_k, vocab) : vocab;
    const bool all = k == vocab && s.top_p == 1;  // then their order does not matter
    if (!all) std::partial_sort(order.begin(), order.begin() + k, order.end(), likelier);

    const double largest = *std::max_element(logits, logits + vocab);
    const auto weight = [&](int64_t i) { return std::exp((logits[order[size_t(i)]] - largest) / s.temperature); };
    double total = 0;
    for (int64_t i = 0; i < k; i++) total += weight(i);
    int64_t kept = 0;
    double mass = 0;
    while (kept < k && (kept == 0 || mass < s.top_p * total)) mass += weight(kept++);

    const auto bits = random_bits(s.seed, Stream::sampling, 0, 0, draw);
    double left = (double(bits[0]) + double(bits[1]) * 0x1p-32) * 0x1p-32 * mass;
    for (int64_t i = 0; i < kept; i++) {
        left -= weight(i);
        if (left < 0) return order[size_t(i)];
    }
    return order[size_t(kept - 1)];
}

Generator::Generator(const ModelConfig& config, const Parameters& parameters, int64_t capacity, Arena& arena)
    : capacity_(capacity), vocab_(config.vocab),
      model_(config, parameters, {.batch = 1, .sequence = std::min(chunk, capacity), .training = false, .cache = capacity}, arena),
      host_logits_(size_t(config.vocab)), order_(size_t(config.vocab)) {
    require(config.position != Position::learned || capacity <= config.context, "prompt and continuation take ", capacity,
            " tokens, but the model has ", config.context, " learned positions; ask for fewer");
    arena.place(ids_, Dtype::i32, {std::min(chunk, capacity)});
    arena.place(past_, Dtype::i32, {1});
    arena.place(logits_, Dtype::f32, {1, config.vocab});
}

void Generator::feed(Context& ctx, const int32_t* ids, int64_t count) {
    const int32_t past = int32_t(cached_);
    ctx.device.memory.from_host(ctx, past_.data, &past, sizeof past);
    ctx.device.memory.from_host(ctx, ids_.data, ids, size_t(count) * sizeof(int32_t));
    model_.forward_cached(ctx, Tensor(ids_.data, Dtype::i32, {count}), past_);
    cached_ += count;
}

const float* Generator::last_logits(Context& ctx, int64_t row) {
    model_.logits(ctx, logits_, row);
    ctx.device.memory.to_host(ctx, host_logits_.data(), logits_.data, logits_.bytes());
    return host_logits_.data();
}

// Whole chunks, then single tokens: two shapes, so two sets of matrix product plans. Returns the row of the last token.
int64_t Generator::feed_prompt(Context& ctx, const std::vector<int32_t>& prompt) {
    CLOVER_CHECK(!prompt.empty() && int64_t(prompt.size()) <= capacity_, prompt.size(), " tokens of prompt");
    model_.start_generation(ctx);
    cached_ = 0;
    const int64_t n = int64_t(prompt.size()), step = ids_.count();
    int64_t row = 0;
    while (cached_ < n) {
        const int64_t count = n - cached_ >= step ? step : 1;
        feed(ctx, prompt.data() + cached_, count);
        row = count - 1;
    }
    return row;
}

void Generator::generate(Context& ctx, const std::vector<int32_t>& prompt, int64_t count, const Sampling& sampling,
                         const std::function<bool(int32_t)>& token) {
    int64_t row = feed_prompt(ctx, prompt);
    for (int64_t i = 0; i < count; i++) {
        const int32_t id = sample_token(last_logits(ctx, row), vocab_, sampling, uint64_t(i), order_);
        if (!token(id) || cached_ == capacity_ || i + 1 == count) return;
        feed(ctx, &id, 1);
        row = 0;
    }
}

void Generator::cached_logits(Context& ctx, const std::vector<int32_t>& text, int64_t prompt, const std::function<void(const float*)>& row) {
    row(last_logits(ctx, feed_prompt(ctx, {text.begin(), text.begin() + prompt})));
    for (size_t i = size_t(prompt); i < text.size(); i++) {
        feed(ctx, &text[i], 1);
        row(last_logits(ctx, 0));
    }
}

LoadedModel::LoadedModel(const CheckpointInfo& checkpoint, const Device& device, int64_t capacity)
    : config_(checkpoint.config), ctx_(device), parameter_arena_(device, "parameters"), unused_(device, "unused"),
      activation_arena_(device, "activations"), workspace_arena_(device, "workspace"), table_(config_.model),
      parameters_(table_, config_, false, parameter_arena_, unused_, unused_),
      generator_(config_.model, parameters_, capacity, activation_arena_) {
    workspace_arena_.place(workspace_, Dtype::f32, {int64_t(generator_.workspace_bytes(ctx_) / sizeof(float)) + 16});
    commit_together(device, {&parameter_arena_, &activation_arena_, &workspace_arena_});
    ctx_.workspace.base = workspace_.data;
    ctx_.workspace.size = workspace_.bytes();
    generator_.prepare(ctx_);
    load_parameters(ctx_, checkpoint, parameters_, false);
}

}  // namespace clover
