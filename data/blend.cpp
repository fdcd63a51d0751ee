#include "blend.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../kernels/error.h"

namespace clover {
namespace {

/// numpy.sum of f64: eight running sums below 128 values, halves above. The last bit of the sum decides ties between sets.
double numpy_sum(const double* values, size_t n) {
    if (n > 128) {
        const size_t half = n / 2 - (n / 2) % 8;
        return numpy_sum(values, half) + numpy_sum(values + half, n - half);
    }
    double sum = 0;
    size_t i = 0;
    if (n >= 8) {
        double r[8];
        std::copy_n(values, 8, r);
        for (i = 8; i + 8 <= n; i += 8)
            for (size_t k = 0; k < 8; k++) r[k] += values[i + k];
        sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    }
    for (; i < n; i++) sum += values[i];
    return sum;
}

std::vector<double> normalised(std::vector<double> weights) {
    for (size_t i = 0; i < weights.size(); i++)
        require(std::isfinite(weights[i]) && weights[i] >= 0, "the weight of data set ", i + 1, " is ", weights[i],
                ", expected a number of 0 or more");
    const double sum = numpy_sum(weights.data(), weights.size());
    require(std::isfinite(sum) && sum > 0, "the weights of the data sets add up to ", sum, ", expected more than 0");
    for (double& w : weights) w /= sum;
    return weights;
}

}  // namespace

Blend::Blend(const std::vector<double>& weights, int64_t draws) : share_(normalised(weights)), draws_(draws) {
    CLOVER_CHECK(draws >= 0, draws, " draws");
    std::vector<int64_t> drawn(share_.size());
    for (int64_t k = 0; k < draws; k++) {
        if (k % stride == 0) states_.push_back(drawn);
        next(k, drawn);
    }
    states_.push_back(drawn);
}

Blend::Draw Blend::next(int64_t k, std::vector<int64_t>& drawn) const {
    size_t chosen = 0;
    double largest_lag = -std::numeric_limits<double>::infinity();
    const double draw = double(std::max(k, int64_t{1}));
    for (size_t i = 0; i < share_.size(); i++) {
        // The product is rounded by itself: fused into the subtraction (FMA), ties between sets would fall otherwise.
        volatile const double due = share_[i] * draw;
        const double lag = due - double(drawn[i]);
        if (share_[i] > 0 && lag > largest_lag) {
            largest_lag = lag;
            chosen = i;
        }
    }
    return {int32_t(chosen), drawn[chosen]++};
}

void Blend::lay_out(int64_t block) const {
    if (block_ == block) return;
    std::vector<int64_t> drawn = states_[size_t(block)];
    block_draws_.clear();
    const int64_t end = std::min(draws_, (block + 1) * stride);
    for (int64_t k = block * stride; k < end; k++) block_draws_.push_back(next(k, drawn));
    block_ = block;
}

Blend::Draw Blend::operator[](int64_t k) const {
    CLOVER_CHECK(k >= 0 && k < draws_, "draw ", k, " of ", draws_);
    const std::lock_guard lock(mutex_);
    lay_out(k / stride);
    return block_draws_[size_t(k % stride)];
}

std::vector<int64_t> Blend::drawn(int64_t k) const {
    CLOVER_CHECK(k >= 0 && k <= draws_, "draw ", k, " of ", draws_);
    if (k == draws_) return states_.back();
    const std::lock_guard lock(mutex_);
    lay_out(k / stride);
    std::vector<int64_t> drawn = states_[size_t(k / stride)];
    for (int64_t i = 0; i < k % stride; i++) drawn[size_t(block_draws_[size_t(i)].set)]++;
    return drawn;
}

}  // namespace clover
