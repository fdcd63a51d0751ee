// Training of a byte-level BPE vocabulary: the most frequent pair of neighbours becomes a token, again and again (Sennrich et al. 2016;
// byte alphabet of Radford et al. 2019). Writes a tokenizer.json.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace clover {

struct BpeTraining {
    int64_t vocab = 0;              // tokens in all: special ones, 256 bytes, merges
    std::string style = "bloom";    // pre-tokenizer: bloom | gpt2
    std::vector<std::string> special = {};  // special tokens, ids 0, 1, …; empty: the style's own (bloom: <unk> <s> </s> <pad>; gpt2: <|endoftext|>)
    int64_t min_frequency = 2;      // a pair that occurs less often is not merged
    int threads = 0;                // 0: all cores
};

struct BpeTrainingReport {
    int64_t documents = 0, bytes = 0, words = 0, distinct_words = 0, merges = 0;
    double seconds = 0;
};

/// Reads the documents of `inputs` (documents.h) and writes `out` whole or not at all. The same bytes for the same text, whatever the number of threads.
/// Ties go to the pair with the smaller (left id, right id), as in Hugging Face's trainer.
BpeTrainingReport train_bpe(const BpeTraining& options, const std::vector<std::string>& inputs, const std::string& out);

}  // namespace clover
