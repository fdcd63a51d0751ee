// The order in which training samples are drawn: Megatron-DeepSpeed's GPTDataset for each set, and its blending of sets
// (megatron/data/gpt_dataset.py, blendable_dataset.py, helpers.cpp), index for index.
// A sample is context + 1 tokens; the last token of one sample is the first of the next in the packed stream.
// Sample i of the run is a pure function of (sets, weights, context, total, seed), so a resumed run needs only a number.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "indexed_dataset.h"

namespace clover {

/// numpy.random.RandomState(seed).shuffle, bit for bit: MT19937 (init_genrand) and masked rejection.
class NumpyLegacyRandom {
public:
    explicit NumpyLegacyRandom(uint32_t seed);
    uint32_t next();
    /// Uniform in [0, largest].
    uint64_t bounded(uint64_t largest);
    template <class T>
    void shuffle(T* values, int64_t count) {
        for (int64_t i = count - 1; i >= 1; i--) std::swap(values[i], values[int64_t(bounded(uint64_t(i)))]);
    }

private:
    uint32_t state_[624];
    int index_ = 624;
};

/// Where the samples of a packed stream start: sample_idx of GPTDataset. Sample k reaches from boundary k to boundary k + 1,
/// the token there included.
struct SampleBoundaries {
    std::vector<int64_t> place;   // sample_idx[:, 0]: place in the stream's list of sequences
    std::vector<int32_t> offset;  // sample_idx[:, 1]: token within that sequence
    int64_t sample_count() const { return int64_t(place.size()) - 1; }
};
/// All ⌊(tokens − 1) / context⌋ samples of the sequences order[0], order[1], … packed one after the other.
SampleBoundaries sample_boundaries(const std::vector<int32_t>& lengths, const std::vector<int32_t>& order, int64_t context);

/// The three indices of GPTDataset over all sequences of one set, for at least `samples` >= 1 samples: as many epochs as
/// that takes, each in its own order.
struct GptIndex {
    int64_t epochs = 0;
    bool separate_last_epoch = false;  // drawn after all others, because only a part of it is needed
    std::vector<int32_t> document;     // sequence of each place in the shuffled stream
    SampleBoundaries boundaries;
    std::vector<int64_t> shuffle;      // order in which samples are drawn
};
GptIndex make_gpt_index(const std::vector<int32_t>& lengths, int64_t context, int64_t samples, uint32_t seed);

/// Megatron's greedy blending: for each draw the set whose share lags most. Weights are normalised; all-zero, negative or
/// NaN weights throw InputError. A set of weight 0 is never drawn.
struct Blend {
    std::vector<int32_t> set;     // which set each draw takes from
    std::vector<int64_t> sample;  // and its how-manieth sample
};
Blend make_blend(const std::vector<double>& weights, int64_t draws);

struct WeightedDataset {
    std::string name;
    std::shared_ptr<const IndexedDataset> data;
    double weight;  // 0 for all: by number of tokens
};

class SampleSequence {
public:
    /// Throws InputError, naming the set, for a set with fewer than context + 1 tokens or a token id >= vocab; a set that its
    /// weight keeps from being drawn at all is not looked at. 0 <= seed < 2³². Reads every drawn set once.
    SampleSequence(std::vector<WeightedDataset> sets, int64_t context, int64_t total, int64_t seed, int64_t vocab);
    int64_t size() const { return total_; }
    /// The context + 1 tokens of sample i, 0 <= i < size(). Any number of threads may read at once.
    void read(int64_t i, int32_t* tokens) const;
    const std::vector<WeightedDataset>& sets() const { return sets_; }
    /// Which set sample i comes from.
    int set_of(int64_t i) const;
    /// How often set `set` is gone through, the last time perhaps in part; 0 if it is never drawn.
    int64_t epochs(int set) const { return indices_[size_t(set)].epochs; }

private:
    std::vector<WeightedDataset> sets_;
    std::vector<GptIndex> indices_;
    Blend blend_;  // empty for a single set
    int64_t context_, total_;
};

}  // namespace clover
