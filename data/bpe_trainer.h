// Training of a byte-level BPE vocabulary: the most frequent pair of neighbours becomes a token, again and again (Sennrich et al. 2016; byte alphabet of Radford
// et al. 2019). Follows Hugging Face's BpeTrainer choice for choice, so that the same text gives the same tokenizer.json:
//   ids: special tokens, then the 256 bytes in the order of the characters that spell them, then merges;
//   the next pair is the one with the largest count, of equals the smallest (left id, right id);
//   two pairs may make the same token, which then is one; a pair whose token came to new neighbours may be chosen again, and its later place counts.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace clover {

struct BpeTraining {
    int64_t vocab = 0;                      // tokens in all: special ones, 256 bytes, merges
    std::string style = "bloom";            // tokenizer_styles.h
    std::vector<std::string> special = {};  // special tokens, ids 0, 1, …; empty: the style's own
    int64_t min_frequency = 2;              // a pair that occurs less often is not merged
    int threads = 0;                        // 0: all cores
    std::string key = "text";               // of JSONL objects
};

struct BpeTrainingReport {
    int64_t documents = 0, bytes = 0, words = 0, distinct_words = 0, tokens = 0, merges = 0;
    double counting_seconds = 0, merging_seconds = 0;
};

/// Reads the documents of `inputs` (documents.h) and writes `out` whole or not at all. The same bytes for the same text, whatever the number of threads. Keeps each
/// distinct word in memory, in some 200 bytes. Throws InputError for a vocabulary that is too small for the bytes, or no text.
BpeTrainingReport train_bpe(const BpeTraining& options, const std::vector<std::string>& inputs, const std::string& out);

/// The report for people, or as one JSON object.
std::string to_text(const BpeTrainingReport& report, const std::string& out, bool json);

/// A vocabulary by itself.
struct BpeVocabulary {
    std::vector<std::string> tokens;                 // bytes by id; special tokens as they are written
    std::vector<std::pair<int32_t, int32_t>> merges; // by rank
};
/// `words`: pieces of text and how often they occur.
BpeVocabulary learn_merges(const std::vector<std::pair<std::string, int64_t>>& words, int64_t vocab, int64_t min_frequency, const std::vector<std::string>& special);

}  // namespace clover
