// The samples of a training run, in order: each set's own order (Megatron-DeepSpeed's GPTDataset, gpt_index.h, or epoch by epoch) and the blending
// of sets (blend.h). Sample i of the run is a pure function of (sets, weights, context, total, seed), so a resumed run needs only a number.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "blend.h"
#include "gpt_index.h"
#include "indexed_dataset.h"

namespace clover {

/// How a set is gone through.
///   megatron  as many epochs as the run takes, planned at the start: all but the last are shuffled as one, so a document may come a second time
///             before another came at all; sample for sample what Megatron-DeepSpeed draws.
///   epochs    each epoch is shuffled for itself: every sample once before any comes again.
enum class SampleOrder : uint8_t { megatron, epochs };

struct WeightedDataset {
    std::string name;
    std::shared_ptr<const IndexedDataset> data;
    double weight = 0;                  // 0 for all: by number of tokens
    int64_t first = 0, sequences = -1;  // the part of the file that is used; -1: all from first on
};

struct SampleOptions {
    int64_t context = 0;
    int64_t total = 0;  // samples of the run
    int64_t seed = 0;   // 0 … 2³² − 1
    int64_t vocab = 0;
    SampleOrder order = SampleOrder::megatron;
    std::string cache = "";                     // folder for indices that are too large for memory; "": all in memory
    int64_t memory_limit = int64_t{64} << 20;   // bytes of one set's index beyond which it goes there
};

class SampleSequence {
public:
    /// Throws InputError, naming the set, for a set with fewer than context + 1 tokens or a token id >= vocab; a set that its weight keeps from being
    /// drawn at all is not looked at.
    SampleSequence(std::vector<WeightedDataset> sets, const SampleOptions& options);
    int64_t size() const { return options_.total; }
    /// The context + 1 tokens of sample i, 0 <= i < size(). Any number of threads may read at once. Throws InputError for an id beyond the vocabulary.
    void read(int64_t i, int32_t* tokens) const;
    const std::vector<WeightedDataset>& sets() const { return sets_; }
    /// Which set sample i comes from.
    int set_of(int64_t i) const;
    /// How many of the first i samples come from each set.
    std::vector<int64_t> drawn(int64_t i) const;
    /// Tokens of the part of the set that is used.
    int64_t token_count(int set) const { return tokens_[size_t(set)]; }
    /// How often a set is gone through, the last time perhaps in part; 0 if it is never drawn.
    int64_t epochs(int set) const;

    /// Whether a run of `total` samples from the same sets draws the same samples as this one, as far as both go: always with order epochs, with
    /// Megatron's where every set is planned over as many epochs.
    bool same_order(int64_t total) const;

private:
    std::vector<WeightedDataset> sets_;
    SampleOptions options_;
    std::vector<int64_t> tokens_;
    std::vector<int64_t> requested_;  // samples that each set's index must hold
    std::unique_ptr<Blend> blend_;    // none for a single set
    mutable std::mutex mutex_;
    mutable std::map<std::pair<size_t, int64_t>, std::shared_ptr<const GptIndex>> indices_;  // by set and epoch (order megatron: 0)

    Blend::Draw draw(int64_t i) const;
    std::vector<int64_t> requests(int64_t total) const;
    GptIndexSpec spec(size_t set, int64_t epoch) const;
    std::shared_ptr<const GptIndex> index(size_t set, int64_t epoch) const;
    std::string cache_stem(size_t set) const;
    void read_window(size_t set, const GptIndex& index, int64_t sample, int32_t* tokens) const;
};

/// The sequences [first, last) of a share of a file, [0, 1] being all of it: bounds round(share · sequences), as BLOOM's "0:0.95" (half to even, as Python).
std::pair<int64_t, int64_t> share_of(int64_t sequences, double from, double to);
/// Megatron's --split "949,50,1": the first sequence of each part, and the number of sequences. Throws InputError for shares that are none.
std::vector<int64_t> split_bounds(int64_t sequences, const std::vector<double>& shares);

}  // namespace clover
