// Learning rate and batch size over a run.
//
// cosine_samples, BLOOM's (Megatron-DeepSpeed megatron/learning_rates.py), n = samples consumed before the step, so that the
// first step has lr = start_lr:
//   n <= warmup: start + (lr − start) n / warmup;   n > decay: min;   else min + ½ (1 + cos(π (n − warmup) / (decay − warmup))) (lr − min)
// cosine_steps, Gopher's (Rae et al. 2021, section 3.1): the same with n = step number, 1 for the first step.
// linear_samples, linear_steps: the same two with a straight line instead of the half cosine (Megatron's --lr-decay-style linear).
// constant: the warm-up of cosine_steps, then lr.
#pragma once
#include <cstdint>

namespace clover {

enum class Schedule : uint8_t { cosine_samples, cosine_steps, linear_samples, linear_steps, constant };
/// Whether warm-up and decay are counted in samples; else in steps.
constexpr bool counts_samples(Schedule s) { return s == Schedule::cosine_samples || s == Schedule::linear_samples; }

struct LearningRate {
    Schedule schedule;
    double lr, min_lr, start_lr;
    int64_t warmup, decay;  // in samples or steps
};

/// step: 1 for the first step of the run; samples: consumed before it.
double learning_rate(const LearningRate& s, int64_t step, int64_t samples);

/// Batch-size ramp-up (Megatron megatron/microbatches.py): from `start` in equal stretches of samples by `increment` up to the
/// full batch. All 0: none.
struct RampUp {
    int64_t start = 0, increment = 0, samples = 0;
};

/// Sequences in the global batch of the step that begins after `consumed` samples.
int64_t global_batch_at(const RampUp& ramp, int64_t full, int64_t consumed);

/// Samples consumed after `steps` steps.
int64_t samples_after(const RampUp& ramp, int64_t full, int64_t steps);

}  // namespace clover
