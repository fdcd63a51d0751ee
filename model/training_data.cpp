// From the names in [data] to tokens: opens the token files, checks them against the model and the tokenizer, draws up the order.
#include <algorithm>
#include <cstdio>

#include "../data/hash.h"
#include "../data/packed_windows.h"
#include "../data/sample_sequence.h"
#include "../data/text_source.h"
#include "../data/token_record.h"
#include "../kernels/random.h"
#include "trainer.h"

namespace clover {
namespace {

/// A set that is opened, and the part of it that is used.
struct OpenedSet {
    std::string name, path;
    std::shared_ptr<const IndexedDataset> data;
    double weight;
    int64_t first, sequences;
};

OpenedSet open_set(const DataSource& source, const DataConfig& config, const Tokenizer& tokenizer) {
    const auto data = std::make_shared<const IndexedDataset>(resolve_token_file(source.path, tokenizer, config.cache));
    const auto [first, last] = share_of(data->sequence_count(), source.from, source.to);
    return {source.name, source.path, data, source.weight, first, last - first};
}

/// Part number `part` of a set that data.split cuts in three.
OpenedSet part_of(OpenedSet set, const std::vector<double>& split, size_t part) {
    const std::vector<int64_t> bounds = split_bounds(set.data->sequence_count(), split);
    set.first = bounds[part];
    set.sequences = bounds[part + 1] - bounds[part];
    require(set.sequences > 0, "data.split leaves no document of the ", set.data->sequence_count(), " in ", set.name, " (", set.path, ") for ",
            part == 0 ? "training" : "validation", "; add text, or change data.split");
    return set;
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

/// Bytes of the original text for each byte that its tokens stand for, over all of the file: a normaliser may have shortened or lengthened the text.
double original_bytes(const IndexedDataset& data, const std::vector<int32_t>& token_bytes) {
    const std::optional<TokenRecord> record = read_token_record(data.prefix());
    if (!record || record->tokens != data.token_count()) return 1;
    int64_t bytes = 0;
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < data.sequence_count(); i++) {
        tokens.resize(size_t(data.length(i)));
        data.read(i, 0, data.length(i), tokens.data());
        for (int32_t id : tokens) bytes += token_bytes[size_t(id)];
    }
    return bytes > 0 ? double(record->bytes) / double(bytes) : 1;
}

ValidSet open_valid(const OpenedSet& set, const Config& config, const std::vector<int32_t>& token_bytes) {
    const int64_t largest = set.data->largest_token(), context = config.model.context;
    require(largest < config.model.vocab, "validation set ", set.name, " (", set.path, ") holds token ", largest, ", but model.vocab is ",
            config.model.vocab, "; it was made with another tokenizer");
    require(predicts_text(PackedWindows(*set.data, context, set.first, set.sequences), context, token_bytes), "validation set ", set.name, " (", set.path,
            ") has no text to predict in its ", set.sequences, " documents; add text or leave the set out");
    return {.name = set.name, .data = set.data, .first = set.first, .sequences = set.sequences, .bytes_per_token_byte = original_bytes(*set.data, token_bytes)};
}

std::vector<DrawnTokens> drawn_tokens(const SampleSequence& order, int64_t context, int64_t samples) {
    std::vector<DrawnTokens> drawn;
    const std::vector<int64_t> counts = order.drawn(samples);
    for (size_t s = 0; s < counts.size(); s++) {
        const int64_t tokens = counts[s] * context, all = order.token_count(int(s));
        drawn.push_back({order.sets()[s].name, tokens, all > 0 ? double(tokens) / double(all) : 0.0});
    }
    return drawn;
}

std::string summarise(const SampleSequence& order, int64_t context) {
    std::string text;
    const std::vector<DrawnTokens> drawn = drawn_tokens(order, context, order.size());
    for (size_t s = 0; s < drawn.size(); s++) {
        char line[200];
        std::snprintf(line, sizeof line, "  %-16s %14lld tokens, %5.2f %% of the samples, %6.2f epochs\n", drawn[s].name.c_str(),
                      static_cast<long long>(order.token_count(int(s))), 100.0 * double(drawn[s].tokens) / double(order.size() * context), drawn[s].epochs);
        text += line;
    }
    return text;
}

/// Tells data apart that would give other samples: for each set its name, sequences, tokens and the part that is used.
std::string fingerprint_of(const SampleSequence& order) {
    std::string sets;
    for (size_t s = 0; s < order.sets().size(); s++) {
        const WeightedDataset& set = order.sets()[s];
        sets += text(set.name, '\0', set.data->sequence_count(), ' ', set.data->token_count(), ' ', set.first, ' ', set.sequences, ' ', order.token_count(int(s)), '\n');
    }
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash64(sets)));
    return digits;
}

/// The token that ends a document, needed where an option is about it.
int32_t end_of_document(const Config& config, const Tokenizer& tokenizer) {
    const DataConfig& d = config.data;
    const bool needed = d.reset_attention || d.reset_positions || !d.train_on_eod || !d.train_after_eod;
    require(!needed || tokenizer.end_of_document() >= 0, "the tokenizer ", d.tokenizer,
            " has no token known to end documents, which data.reset_attention, reset_positions, train_on_eod and train_after_eod go by; name it in data.end_of_document");
    return tokenizer.end_of_document();
}

}  // namespace

TrainingData open_training_data(const Config& config) {
    const DataConfig& d = config.data;
    require(!d.train.empty(), "data.train is empty: name the token files or text files to train on, e.g. data.train = [\"corpus.txt\"]");
    TrainingData data;
    data.tokenizer = load_tokenizer(d.tokenizer, d.end_of_document);
    data.end_of_document = end_of_document(config, *data.tokenizer);
    require(data.tokenizer->vocab_size() <= config.model.vocab, "model.vocab is ", config.model.vocab, ", but the tokenizer ", d.tokenizer, " has ",
            data.tokenizer->vocab_size(), " tokens; raise model.vocab");
    std::vector<WeightedDataset> sets;
    std::vector<OpenedSet> valid;
    for (const DataSource& source : d.train) {
        OpenedSet set = open_set(source, d, *data.tokenizer);
        if (!d.split.empty() && d.split[1] > 0) valid.push_back(part_of(set, d.split, 1));
        if (!d.split.empty()) set = part_of(set, d.split, 0);
        sets.push_back({set.name, set.data, set.weight, set.first, set.sequences});
    }
    for (const DataSource& source : d.valid) valid.push_back(open_set(source, d, *data.tokenizer));
    const int64_t context = config.model.context;
    const auto order = std::make_shared<const SampleSequence>(
        std::move(sets), SampleOptions{.context = context, .total = samples_after(config.train.ramp_up, config.train.global_batch, config.train.steps),
                                       .seed = config.train.seed, .vocab = config.model.vocab, .order = d.order, .cache = d.cache});
    data.read = [order](int64_t i, int32_t* tokens) { order->read(i, tokens); };
    data.same_order = [order](int64_t total) { return order->same_order(total); };
    data.drawn = [order, context](int64_t i) { return drawn_tokens(*order, context, i); };
    data.fingerprint = fingerprint_of(*order);
    data.summary = summarise(*order, context);
    data.token_bytes = bytes_of_tokens(*data.tokenizer, config.model.vocab);
    for (const OpenedSet& set : valid) data.valid.push_back(open_valid(set, config, data.token_bytes));
    return data;
}

TrainingData open_evaluation_data(const Config& config, const std::string& tokenizer, const std::string& path) {
    TrainingData data;
    data.tokenizer = load_tokenizer(tokenizer, config.data.end_of_document);
    data.end_of_document = end_of_document(config, *data.tokenizer);
    data.token_bytes = bytes_of_tokens(*data.tokenizer, config.model.vocab);
    const OpenedSet set = open_set({.path = path, .name = path}, config.data, *data.tokenizer);
    data.valid.push_back(open_valid(set, config, data.token_bytes));
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
