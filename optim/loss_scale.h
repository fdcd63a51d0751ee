// Dynamic loss scaling, for recipe fp16 (Micikevicius et al. 2018, section 3.2). The loss is multiplied by a scale before backward, so that small gradients
// are not lost below the least number of f16, and the gradient divided by it before the update. A step whose gradient overflows is skipped.
//
// As DeepSpeed adapts the scale: it doubles after every `window` steps without overflow; an overflow halves it, to `least` at the lowest, but only the
// hysteresis-th overflow of a window does. BLOOM's smaller models trained with 2^12, a window of 500, a hysteresis of 2 and at least 1.
#pragma once
#include <algorithm>
#include <cstdint>

namespace clover {

struct LossScaleConfig {
    double initial = 4096;
    int64_t window = 500, hysteresis = 2;
    static constexpr double least = 1, most = 0x1p24;
};

/// Part of a run's state.
struct LossScale {
    double value = 1;
    int64_t clean = 0;    // steps without overflow since the last one, or since the last doubling
    int64_t patience = 0; // overflows that will pass before one halves the scale
    int64_t skipped = 0;  // steps so far

    LossScale() = default;
    explicit LossScale(const LossScaleConfig& c) : value(c.initial), patience(c.hysteresis - 1) {}
    bool operator==(const LossScale&) const = default;

    void overflow() {
        skipped++, clean = 0;
        if (patience > 0) patience--;
        else value = std::max(value / 2, LossScaleConfig::least);
    }
    void step(const LossScaleConfig& c) {
        if (++clean < c.window) return;
        clean = 0, patience = c.hysteresis - 1;
        value = std::min(value * 2, LossScaleConfig::most);
    }
};

}  // namespace clover
