// Megatron's blending of data sets (megatron/data/blendable_dataset.py, helpers.cpp): for each draw k the set with the largest w·max(k, 1) − drawn,
// the first of equals. The choices are a sequence without a closed form; the state at every 2¹⁶th draw is kept, and what lies between is gone through
// again when it is asked for, so that no array grows with the run.
#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

namespace clover {

class Blend {
public:
    struct Draw {
        int32_t set;     // which set the draw takes from
        int64_t sample;  // and its how-manieth sample
    };
    /// Weights are normalised; all-zero, negative or NaN weights throw InputError. A set of weight 0 is never drawn (Megatron draws it where all
    /// others are ahead of their share).
    Blend(const std::vector<double>& weights, int64_t draws);
    /// 0 <= k < draws. Any number of threads may ask at once; quick where k lies near the last one asked for.
    Draw operator[](int64_t k) const;
    /// How many of the first k draws came from each set, 0 <= k <= draws.
    std::vector<int64_t> drawn(int64_t k) const;
    int64_t size() const { return draws_; }
    const std::vector<double>& shares() const { return share_; }

private:
    static constexpr int64_t stride = 1 << 16;
    std::vector<double> share_;
    int64_t draws_;
    std::vector<std::vector<int64_t>> states_;  // drawn(i · stride)
    mutable std::mutex mutex_;
    mutable int64_t block_ = -1;                // the one that is laid out
    mutable std::vector<Draw> block_draws_;

    Draw next(int64_t k, std::vector<int64_t>& drawn) const;
    void lay_out(int64_t block) const;
};

}  // namespace clover
