#include "schedule.h"

#include <cmath>

namespace clover {

double learning_rate(const LearningRate& s, int64_t step, int64_t samples) {
    const double n = double(counts_samples(s.schedule) ? samples : step), warmup = double(s.warmup), decay = double(s.decay);
    if (s.warmup > 0 && n <= warmup) return s.start_lr + (s.lr - s.start_lr) * n / warmup;
    if (s.schedule == Schedule::constant) return s.lr;
    if (n > decay) return s.min_lr;
    const double done = (n - warmup) / (decay - warmup);
    const bool linear = s.schedule == Schedule::linear_samples || s.schedule == Schedule::linear_steps;
    return s.min_lr + (linear ? 1.0 - done : 0.5 * (std::cos(M_PI * done) + 1.0)) * (s.lr - s.min_lr);
}

int64_t global_batch_at(const RampUp& ramp, int64_t full, int64_t consumed) {
    if (ramp.increment == 0 || consumed > ramp.samples) return full;
    const double stretch = double(ramp.samples) / double((full - ramp.start) / ramp.increment);
    return ramp.start + int64_t(double(consumed) / stretch) * ramp.increment;
}

int64_t samples_after(const RampUp& ramp, int64_t full, int64_t steps) {
    int64_t consumed = 0, step = 0;
    for (; step < steps && ramp.increment != 0 && consumed <= ramp.samples; step++) consumed += global_batch_at(ramp, full, consumed);
    return consumed + (steps - step) * full;
}

}  // namespace clover
