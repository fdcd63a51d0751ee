// From the names in [data] to tokens: opens the token files, checks them against the model and the tokenizer, draws up the order.
#include <algorithm>
#include <cstdio>

#include "../data/packed_windows.h"
#include "../data/sample_sequence.h"
#include "../data/text_source.h"
#include "../kernels/random.h"
#include "trainer.h"

namespace clover {
namespace {

std::shared_ptr<const IndexedDataset> open_set(const DataSource& source, const DataConfig& config, const Tokenizer& tokenizer) {
    return std::make_shared<const IndexedDataset>(resolve_token_file(source.path, tokenizer, config.cache));
}

std::vector<int32_t> bytes_of_tokens(const Tokenizer& tokenizer, int64_t vocab) {
    std::vector<int32_t> bytes(size_t(vocab), 0);
    for (int32_t id = 0; id < tokenizer.vocab_size(); id++) bytes[size_t(id)] = int32_t(tokenizer.token_bytes(id).size());
    return bytes;
}

// Bits per byte are divided by the bytes of what is predicted, which an end of document alone does not have.
bool predicts_text(const PackedWindows& windows, int64_t context, const std::vector<int32_t>& token_bytes) {
    std::vector<int32_t> ids(static_cast<size_t>(context)), targets(ids);
    windows.read(0, ids.data(), targets.data());
    return std::any_of(targets.begin(), targets.end(), [&](int32_t id) { return id >= 0 && token_bytes[size_t(id)] > 0; });
}

ValidSet open_valid(const DataSource& source, const Config& config, const Tokenizer& tokenizer, const std::vector<int32_t>& token_bytes) {
    ValidSet set{source.name, open_set(source, config.data, tokenizer)};
    const int64_t largest = set.data->largest_token();
    require(largest < config.model.vocab, "data.valid: set ", source.name, " (", source.path, ") holds token ", largest,
            ", but model.vocab is ", config.model.vocab, "; it was made with another tokenizer");
    require(predicts_text(PackedWindows(*set.data, config.model.context), config.model.context, token_bytes), "data.valid: set ", source.name, " (",
            source.path, ") has ", set.data->token_count(), " tokens, which leave no text to predict; add text or leave the set out");
    return set;
}

std::string summarise(const SampleSequence& order, int64_t context) {
    std::string text;
    std::vector<int64_t> drawn(order.sets().size());
    for (int64_t i = 0; i < order.size(); i++) drawn[size_t(order.set_of(i))]++;
    for (size_t s = 0; s < order.sets().size(); s++) {
        char line[200];
        std::snprintf(line, sizeof line, "  %-16s %14lld tokens, %5.2f %% of the samples, %6.2f epochs\n", order.sets()[s].name.c_str(),
                      static_cast<long long>(order.sets()[s].data->token_count()), 100.0 * double(drawn[s]) / double(order.size()),
                      double(drawn[s]) * double(context) / double(order.sets()[s].data->token_count()));
        text += line;
    }
    return text;
}

}  // namespace

TrainingData open_training_data(const Config& config) {
    require(!config.data.train.empty(), "data.train is empty: name the token files or text files to train on, e.g. data.train = [\"corpus.txt\"]");
    TrainingData data;
    data.tokenizer = load_tokenizer(config.data.tokenizer);
    require(data.tokenizer->vocab_size() <= config.model.vocab, "model.vocab is ", config.model.vocab, ", but the tokenizer ",
            config.data.tokenizer, " has ", data.tokenizer->vocab_size(), " tokens; raise model.vocab");
    std::vector<WeightedDataset> sets;
    for (const DataSource& source : config.data.train)
        sets.push_back({source.name, open_set(source, config.data, *data.tokenizer), source.weight});
    const int64_t total = samples_after(config.train.ramp_up, config.train.global_batch, config.train.steps);
    const auto order = std::make_shared<const SampleSequence>(std::move(sets), config.model.context, total, config.train.seed, config.model.vocab);
    data.read = [order](int64_t i, int32_t* tokens) { order->read(i, tokens); };
    data.summary = summarise(*order, config.model.context);
    data.token_bytes = bytes_of_tokens(*data.tokenizer, config.model.vocab);
    for (const DataSource& source : config.data.valid) data.valid.push_back(open_valid(source, config, *data.tokenizer, data.token_bytes));
    return data;
}

TrainingData synthetic_data(const Config& config) {
    TrainingData data;
    const int64_t context = config.model.context, vocab = config.model.vocab;
    const uint64_t seed = uint64_t(config.train.seed);
    data.read = [=](int64_t i, int32_t* tokens) {
        for (int64_t t = 0; t <= context; t++)
            tokens[t] = int32_t(random_bits(seed, Stream::data_order, 0, 0, uint64_t(i * (context + 1) + t))[0] % uint64_t(vocab));
    };
    data.token_bytes.assign(size_t(vocab), 1);
    return data;
}

}  // namespace clover
