#include "bpe_trainer.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "../kernels/error.h"
#include "byte_alphabet.h"
#include "documents.h"
#include "hash.h"
#include "new_file.h"
#include "ordered.h"
#include "pre_tokenizer.h"
#include "progress.h"
#include "tokenizer_styles.h"
#include "utf8.h"

namespace clover {
namespace {

// ---- Counting words ------------------------------------------------------------------------------------------------------------

struct BytesHash {
    using is_transparent = void;
    size_t operator()(std::string_view bytes) const { return size_t(hash64(bytes)); }
};
using WordCounts = std::unordered_map<std::string, int64_t, BytesHash, std::equal_to<>>;

struct Batch : DocumentBatch {
    int64_t bytes = 0;  // of text
};

void count_words(const Batch& batch, const PreTokenizer& pre_tokenizer, const DocumentOptions& options, WordCounts& counts, int64_t& bytes) {
    std::string scratch, valid;
    for (size_t i = 0; i < batch.documents.size(); i++) {
        const std::string_view text = document_text(batch.documents[i], options, batch.places[i], scratch);
        bytes += int64_t(text.size());
        pre_tokenizer.split(valid_utf8(text, valid), [&](std::string_view word) {
            const auto found = counts.find(word);
            if (found != counts.end()) found->second++;
            else counts.emplace(word, 1);
        });
    }
}

/// In the order of the words, so that nothing depends on how they were found.
std::vector<std::pair<std::string, int64_t>> count_all(const BpeTraining& options, const std::vector<std::string>& inputs, const PreTokenizer& pre_tokenizer,
                                                       BpeTrainingReport& report) {
    const int threads = options.threads > 0 ? options.threads : int(std::max(1u, std::thread::hardware_concurrency()));
    const DocumentOptions document_options{.format = DocumentFormat::automatic, .key = options.key};
    DocumentReader reader(inputs, document_options);
    std::vector<WordCounts> counts(static_cast<size_t>(threads));
    Progress progress("counting words");
    ordered_parallel<Batch>(
        threads, [&](Batch& batch) { return next_batch(reader, batch); },
        [&](Batch& batch, int worker) { count_words(batch, pre_tokenizer, document_options, counts[size_t(worker)], batch.bytes); },
        [&](Batch& batch) {
            report.documents += int64_t(batch.documents.size()), report.bytes += batch.bytes;
            progress.show(batch.bytes_read, reader.bytes_total(), text(report.documents, " documents"));
        });
    WordCounts& all = counts[0];
    for (size_t i = 1; i < counts.size(); i++) {
        for (const auto& [word, count] : counts[i]) all[word] += count;
        counts[i] = {};
    }
    std::vector<std::pair<std::string, int64_t>> words(all.begin(), all.end());
    std::sort(words.begin(), words.end());
    for (const auto& [word, count] : words) report.words += count;
    report.distinct_words = int64_t(words.size());
    return words;
}

// ---- Merging -------------------------------------------------------------------------------------------------------------------

using Pair = std::pair<int32_t, int32_t>;
constexpr uint64_t key_of(Pair pair) { return uint64_t(uint32_t(pair.first)) << 32 | uint32_t(pair.second); }
struct KeyHash {
    size_t operator()(uint64_t key) const { return size_t(mix64(key)); }
};

/// A pair that may be merged next, with the words that it was found in.
struct Candidate {
    int64_t count;
    Pair pair;
    std::vector<uint32_t> words;
};
struct Later {
    bool operator()(const Candidate& a, const Candidate& b) const { return a.count != b.count ? a.count < b.count : a.pair > b.pair; }
};

class Learner {
public:
    Learner(const std::vector<std::pair<std::string, int64_t>>& words, const std::vector<std::string>& special) {
        for (const std::string& token : special) add_token(token);
        std::vector<std::pair<uint32_t, int>> alphabet;
        for (int b = 0; b < 256; b++) alphabet.emplace_back(character_of_byte(uint8_t(b)), b);
        std::sort(alphabet.begin(), alphabet.end());
        // A special token of one character may be a byte's spelling already.
        std::vector<int32_t> byte_ids(256);
        for (const auto& [character, b] : alphabet) byte_ids[size_t(b)] = add_token(spelling_of_bytes(std::string(1, char(b))));
        for (const auto& [word, count] : words) {
            words_.push_back({uint64_t(symbols_.size()), uint32_t(word.size()), count});
            for (unsigned char b : word) symbols_.push_back(byte_ids[b]);
        }
        count_pairs();
    }

    BpeVocabulary learn(int64_t vocab, int64_t min_frequency) {
        std::vector<Pair> merges;
        while (int64_t(tokens_.size()) < vocab && !queue_.empty()) {
            Candidate top = pop();
            const int64_t count = counts_[key_of(top.pair)];
            if (top.count != count) {  // the words around it have changed meanwhile
                top.count = count;
                push(std::move(top));
                continue;
            }
            if (count < 1 || count < min_frequency) break;
            merges.push_back(top.pair);
            apply(top);
        }
        return {std::move(tokens_), last_of_each(merges)};
    }

private:
    struct Word {
        uint64_t first;   // in symbols_
        uint32_t length;  // symbols
        int64_t count;
    };
    std::vector<std::string> tokens_;  // spelt in the byte alphabet
    std::unordered_map<std::string, int32_t, BytesHash, std::equal_to<>> ids_;
    std::vector<Word> words_;
    std::vector<int32_t> symbols_;
    std::unordered_map<uint64_t, int64_t, KeyHash> counts_;
    std::vector<Candidate> queue_;  // a heap, the next one first
    std::unordered_map<uint64_t, std::vector<uint32_t>, KeyHash> found_;  // new pairs, and in which words

    int32_t add_token(const std::string& token) {
        const auto [place, fresh] = ids_.try_emplace(token, int32_t(tokens_.size()));
        if (fresh) tokens_.push_back(token);
        return place->second;
    }
    void push(Candidate candidate) {
        queue_.push_back(std::move(candidate));
        std::push_heap(queue_.begin(), queue_.end(), Later());
    }
    Candidate pop() {
        std::pop_heap(queue_.begin(), queue_.end(), Later());
        Candidate top = std::move(queue_.back());
        queue_.pop_back();
        return top;
    }
    void note(Pair pair, uint32_t word) {
        std::vector<uint32_t>& words = found_[key_of(pair)];
        if (words.empty() || words.back() != word) words.push_back(word);
    }
    void offer_found() {
        for (auto& [key, words] : found_)
            if (const int64_t count = counts_[key]; count > 0)
                push({count, {int32_t(key >> 32), int32_t(key & 0xffffffff)}, std::move(words)});
        found_.clear();
    }
    void count_pairs() {
        for (uint32_t w = 0; w < words_.size(); w++)
            for (uint32_t i = 0; i + 1 < words_[w].length; i++) {
                const Pair pair{symbols_[words_[w].first + i], symbols_[words_[w].first + i + 1]};
                counts_[key_of(pair)] += words_[w].count;
                note(pair, w);
            }
        offer_found();
    }

    void apply(const Candidate& chosen) {
        const int32_t merged = add_token(tokens_[size_t(chosen.pair.first)] + tokens_[size_t(chosen.pair.second)]);
        for (uint32_t w : chosen.words) merge_in(w, chosen.pair, merged);
        offer_found();
    }
    /// Merges the pair in one word, from left to right; counts what neighbours come and go.
    void merge_in(uint32_t w, Pair pair, int32_t merged) {
        Word& word = words_[w];
        int32_t* s = symbols_.data() + word.first;
        const auto change = [&](int32_t left, int32_t right, int64_t by) {
            counts_[key_of({left, right})] += by * word.count;
            if (by > 0) note({left, right}, w);
        };
        uint32_t to = 0;
        for (uint32_t from = 0; from < word.length; from++, to++) {
            if (s[from] != pair.first || from + 1 >= word.length || s[from + 1] != pair.second) {
                s[to] = s[from];
                continue;
            }
            if (to > 0) change(s[to - 1], pair.first, -1), change(s[to - 1], merged, 1);
            from++;
            if (from + 1 < word.length) change(pair.second, s[from + 1], -1), change(merged, s[from + 1], 1);
            s[to] = merged;
        }
        word.length = to;
    }

    static std::vector<Pair> last_of_each(const std::vector<Pair>& merges) {
        std::set<Pair> seen;
        std::vector<Pair> kept;
        for (size_t i = merges.size(); i-- > 0;)
            if (seen.insert(merges[i]).second) kept.push_back(merges[i]);
        std::reverse(kept.begin(), kept.end());
        return kept;
    }
};

// ---- The file ------------------------------------------------------------------------------------------------------------------

std::string quoted(const std::string& token) { return nlohmann::json(token).dump(); }

std::string tokenizer_json(const BpeVocabulary& vocabulary, const TokenizerStyle& style, const std::vector<std::string>& special) {
    std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
    for (size_t i = 0; i < special.size(); i++)
        out += text(i ? ",\n" : "\n", "    {\"id\": ", i, ", \"content\": ", quoted(special[i]),
                    ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}");
    out += text("\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ", style.pre_tokenizer, ",\n  \"post_processor\": ", style.post_processor,
                ",\n  \"decoder\": ", style.decoder,
                ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n"
                "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {");
    for (size_t id = 0; id < vocabulary.tokens.size(); id++) out += text(id ? ",\n      " : "\n      ", quoted(vocabulary.tokens[id]), ": ", id);
    out += "\n    },\n    \"merges\": [";
    for (size_t i = 0; i < vocabulary.merges.size(); i++) {
        const auto& [left, right] = vocabulary.merges[i];
        out += text(i ? ",\n      [" : "\n      [", quoted(vocabulary.tokens[size_t(left)]), ", ", quoted(vocabulary.tokens[size_t(right)]), "]");
    }
    return out + "\n    ]\n  }\n}\n";
}

void check(const BpeTraining& options, const std::vector<std::string>& special) {
    const int64_t least = int64_t(special.size()) + 256;
    require(options.vocab >= least, "a vocabulary of ", options.vocab, " has no room for ", special.size(), " special tokens and 256 bytes; at least ", least,
            " are needed");
    require(options.vocab <= (int64_t{1} << 24), "a vocabulary of ", options.vocab, "; at most ", int64_t{1} << 24, " are supported");
    std::set<std::string> seen;
    for (const std::string& token : special) {
        require(!token.empty() && is_utf8(token), "a special token is ", token.empty() ? "empty" : "not UTF-8");
        require(seen.insert(token).second, "the special token ", token, " is given twice");
    }
}

double seconds_since(std::chrono::steady_clock::time_point start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

}  // namespace

BpeVocabulary learn_merges(const std::vector<std::pair<std::string, int64_t>>& words, int64_t vocab, int64_t min_frequency, const std::vector<std::string>& special) {
    return Learner(words, special).learn(vocab, min_frequency);
}

BpeTrainingReport train_bpe(const BpeTraining& options, const std::vector<std::string>& inputs, const std::string& out) {
    const TokenizerStyle& style = find_tokenizer_style(options.style);
    const std::vector<std::string>& special = options.special.empty() ? style.special : options.special;
    check(options, special);
    const PreTokenizer pre_tokenizer(nlohmann::json::parse(style.pre_tokenizer), "style " + options.style);
    BpeTrainingReport report;
    const auto start = std::chrono::steady_clock::now();
    const auto words = count_all(options, inputs, pre_tokenizer, report);
    require(report.words > 0, "there is no text in ", inputs.empty() ? "no input" : inputs[0], inputs.size() > 1 ? " and the other inputs" : "", " to train on");
    report.counting_seconds = seconds_since(start);
    const auto middle = std::chrono::steady_clock::now();
    const BpeVocabulary vocabulary = learn_merges(words, options.vocab, options.min_frequency, special);
    report.merging_seconds = seconds_since(middle);
    report.tokens = int64_t(vocabulary.tokens.size());
    report.merges = int64_t(vocabulary.merges.size());
    write_file_whole(out, tokenizer_json(vocabulary, style, special));
    return report;
}

std::string to_text(const BpeTrainingReport& r, const std::string& out, bool json) {
    if (json)
        return nlohmann::ordered_json{{"out", out}, {"documents", r.documents}, {"bytes", r.bytes}, {"words", r.words}, {"distinct_words", r.distinct_words},
                                      {"tokens", r.tokens}, {"merges", r.merges}, {"counting_seconds", r.counting_seconds}, {"merging_seconds", r.merging_seconds}}
                   .dump() + "\n";
    char line[400];
    std::snprintf(line, sizeof line, "%lld documents, %.1f MB, %lld words, %lld distinct, counted in %.1f s; %lld tokens, %lld merges, in %.1f s\n",
                  static_cast<long long>(r.documents), double(r.bytes) / 1e6, static_cast<long long>(r.words), static_cast<long long>(r.distinct_words),
                  r.counting_seconds, static_cast<long long>(r.tokens), static_cast<long long>(r.merges), r.merging_seconds);
    return line + text("wrote ", out, "\n");
}

}  // namespace clover
