// The three indices of Megatron-DeepSpeed's GPTDataset (megatron/data/gpt_dataset.py, helpers.cpp), value for value:
//   document  the sequences of all epochs, shuffled: the packed stream (doc_idx)
//   sample    where in that stream each sample starts: place in `document`, token within the sequence (sample_idx)
//   shuffle   the order in which samples are drawn (shuffle_idx)
// A sample is context + 1 tokens; its last token is the first of the next. Arrays lie in memory, or as mapped .npy files that are built once.
#pragma once
#include <functional>

#include "integer_array.h"

namespace clover {

/// Tokens of a sequence.
using SequenceLength = std::function<int64_t(int64_t sequence)>;

struct GptIndexSpec {
    int64_t first = 0, sequences = 0;  // the sequences [first, first + sequences) of the file
    int64_t context = 0;
    int64_t samples = 0;  // at least so many, over as many epochs as that takes; 0: those of one epoch
    uint32_t seed = 0;
};

/// Where the samples of a packed stream start. Sample k reaches from boundary k to boundary k + 1, the token there included.
struct SampleBoundaries {
    IntegerArray pairs;  // (samples + 1, 2): place in the stream's list of sequences, token within that sequence
    int64_t place(int64_t k) const { return pairs[2 * k]; }
    int64_t offset(int64_t k) const { return pairs[2 * k + 1]; }
    int64_t sample_count() const { return pairs.count() / 2 - 1; }
};

struct GptIndex {
    int64_t epochs = 0;
    bool separate_last_epoch = false;  // drawn after all others, because only a part of it is needed
    IntegerArray document;
    SampleBoundaries boundaries;
    IntegerArray shuffle;
};

/// All ⌊(tokens − 1) / context⌋ samples of the sequences order[0], order[1], … packed one after the other, written to `pairs`, whose first
/// dimension must be that + 1.
void fill_sample_boundaries(const SequenceLength& length, const IntegerArray& order, int64_t context, IntegerArray& pairs);

/// `stem`: the beginning of file names for the arrays, "" for memory. Files that are there already and whole are used as they are; so the stem must
/// tell the token file and `first`, `sequences` apart, to which this adds context, samples and seed, as Megatron does
/// (STEM_indexmap_1000ns_2048sl_42s_doc_idx.npy). Throws InputError for a range with fewer than context + 1 tokens.
GptIndex make_gpt_index(const SequenceLength& length, const GptIndexSpec& spec, const std::string& stem = "");

/// What the order of samples follows from, beside the sequences, context and seed: specifications that agree in it draw the same.
struct GptShuffle {
    int64_t epochs;
    bool separate_last_epoch;
    bool operator==(const GptShuffle&) const = default;
};
GptShuffle gpt_shuffle(const SequenceLength& length, const GptIndexSpec& spec);

/// Bytes that the arrays of this index take.
int64_t gpt_index_bytes(const SequenceLength& length, const GptIndexSpec& spec);

}  // namespace clover
