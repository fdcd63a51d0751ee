// Spikes of the loss or the gradient norm: values far above those before. BLOOM's only one (steps 31,214 to 31,250: loss 2.20 to 5.10, gradient norm
// 0.24 to 960) is the kind that a person should hear of.
//
// Mean and variance run exponentially over the values, with weight 1/64 for each; a value more than six standard deviations and 5 % above the mean is a
// spike. It enters the mean only as much as the limit that it passed, so that a long one is told as long as it lasts. The first 64 values only teach.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace clover {

struct Spike {
    double value, mean, sd;  // the mean and standard deviation before it
};

class SpikeDetector {
public:
    /// The next value, of a step or of the mean of several.
    std::optional<Spike> push(double x) {
        if (!std::isfinite(x)) return {};
        const double sd = std::sqrt(variance_), limit = mean_ + std::max(6 * sd, 0.05 * std::abs(mean_));
        const bool spike = count_ >= taught && x > limit;
        const Spike found{x, mean_, sd};
        count_++;
        const double weight = 1.0 / double(std::min(count_, taught)), away = (spike ? limit : x) - mean_;
        mean_ += weight * away;
        variance_ = (1 - weight) * (variance_ + weight * away * away);
        return spike ? std::optional(found) : std::nullopt;
    }

private:
    static constexpr int64_t taught = 64;
    int64_t count_ = 0;
    double mean_ = 0, variance_ = 0;
};

}  // namespace clover
