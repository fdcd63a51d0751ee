// Softmax cross-entropy on the CPU, a row per thread. The first pass over a row keeps a running maximum and sum, so that the row comes
// from memory once; the second, which writes the gradient, finds it in the second-level cache.
#include "cross_entropy.h"

#include <cmath>
#include <limits>

#include "parallel.h"

namespace clover {
namespace {
using namespace simd;

/// The row's maximum and Σ exp(logit − maximum).
struct Softmax {
    float maximum, sum;
};

/// A running softmax in each lane. The maxima begin at the least finite number: −∞ − −∞ would be NaN where a logit is masked.
struct LaneSoftmax {
    f32x16 maximum = splat(std::numeric_limits<float>::lowest()), sum = {};

    /// Four vectors at a time share a maximum, which soon stands: the sums are rescaled when it rises.
    void add(const float* x, int64_t n) {
        f32x16 part[4] = {};
        int64_t i = 0;
        for (; i + 4 * width <= n; i += 4 * width) {
            f32x16 v[4];
            for (int k = 0; k < 4; k++) v[k] = load(x + i + k * width);
            raise(max(max(v[0], v[1]), max(v[2], v[3])), part);
            for (int k = 0; k < 4; k++) part[k] += exp(v[k] - maximum);
        }
        for_vectors(n - i, [&](int64_t rest, auto lanes) {
            const f32x16 v = keep(load(x + i + rest, lanes), lanes, -std::numeric_limits<float>::infinity());
            raise(v, part);
            part[0] += exp(v - maximum);
        });
        sum += (part[0] + part[1]) + (part[2] + part[3]);
    }

    Softmax total() const {
        const float greatest = max(maximum);
        return {greatest, simd::sum(sum * exp(maximum - greatest))};
    }

private:
    CLOVER_INLINE void raise(f32x16 candidates, f32x16 (&part)[4]) {
        if (!any_greater(candidates, maximum)) return;
        const f32x16 raised = max(candidates, maximum), factor = exp(maximum - raised);
        for (f32x16& p : part) p *= factor;
        sum *= factor;
        maximum = raised;
    }
};

Softmax softmax_of(const float* logits, int64_t V) {
    constexpr int64_t block = 4096;  // bounds the length of the chains of additions
    LaneSoftmax lanes;
    for (int64_t first = 0; first < V; first += block) lanes.add(logits + first, std::min(block, V - first));
    return lanes.total();
}

/// `target` may lie outside [0, V): with a shard of the vocabulary, in another's.
template <class D>
void gradient_row(D* dlogits, const float* logits, int64_t V, int64_t target, Softmax s, float scale) {
    const float maximum = s.maximum, factor = scale / s.sum;
    const bool here = target >= 0 && target < V;
    // The target's logit may share its place with its gradient.
    const float at_target = here ? exp(splat(logits[target] - maximum))[0] * factor - scale : 0.0f;
    for_vectors(V, [=](int64_t i, auto lanes) { store(dlogits + i, exp(load(logits + i, lanes) - maximum) * factor, lanes); });
    if (here) dlogits[target] = from_float<D>(at_target);
}

template <class D>
void run_rows(const CrossEntropy& c) {
    const int64_t R = c.logits.rows(), V = c.logits.columns();
    const float* const logits = c.logits.as<float>();
    const int32_t* const targets = c.targets.as<int32_t>();
    float* const loss = c.loss.as<float>();
    D* const dlogits = c.dlogits.present() ? c.dlogits.as<D>() : nullptr;

#pragma omp parallel for schedule(static) if (R * V > parallel_above / 4)
    for (int64_t r = 0; r < R; r++) {
        const float* const row = logits + r * V;
        if (targets[r] < 0) {
            loss[r] = 0;
            if (dlogits) std::memset(dlogits + r * V, 0, size_t(V) * sizeof(D));
            continue;
        }
        const Softmax s = softmax_of(row, V);
        loss[r] = float(std::log(double(s.sum)) + (double(s.maximum) - double(row[targets[r]])));
        if (dlogits) gradient_row(dlogits + r * V, row, V, targets[r], s, c.scale);
    }
}

void run(Context&, const CrossEntropy& c) {
    check(c);
    const int64_t R = c.logits.shape[0], V = c.logits.shape[1];
    for (int64_t r = 0; r < R; r++)
        CLOVER_CHECK(c.targets.as<int32_t>()[r] < V, "target ", c.targets.as<int32_t>()[r], " of row ", r, ", vocabulary ", V);
    by_dtype(c.dlogits.present() ? c.dlogits.dtype : Dtype::f32, [&](auto d) { run_rows<decltype(d)>(c); });
}

void statistics(Context&, const CrossEntropyShard& c) {
    check(c);
    const int64_t R = c.logits.shape[0], V = c.logits.shape[1];
#pragma omp parallel for schedule(static) if (R * V > parallel_above / 4)
    for (int64_t r = 0; r < R; r++) {
        const float* const row = c.logits.as<float>() + r * V;
        const Softmax s = softmax_of(row, V);
        const int64_t target = c.targets.as<int32_t>()[r] - c.first;
        c.maximum.as<float>()[r] = s.maximum;
        c.sum.as<float>()[r] = s.sum;
        c.target.as<float>()[r] = target >= 0 && target < V ? row[target] : 0.0f;
    }
}

template <class D>
void finish_rows(const CrossEntropyShard& c) {
    const int64_t R = c.logits.shape[0], V = c.logits.shape[1];
    D* const dlogits = c.dlogits.present() ? c.dlogits.as<D>() : nullptr;
#pragma omp parallel for schedule(static) if (R * V > parallel_above / 4)
    for (int64_t r = 0; r < R; r++) {
        const bool trained = c.targets.as<int32_t>()[r] >= 0;
        const Softmax s{c.maximum.as<float>()[r], c.sum.as<float>()[r]};
        c.loss.as<float>()[r] = trained ? float(std::log(double(s.sum)) + (double(s.maximum) - double(c.target.as<float>()[r]))) : 0.0f;
        if (!dlogits) continue;
        if (trained)
            gradient_row(dlogits + r * V, c.logits.as<float>() + r * V, V, c.targets.as<int32_t>()[r] - c.first, s, c.scale);
        else
            std::memset(dlogits + r * V, 0, size_t(V) * sizeof(D));
    }
}

void finish(Context&, const CrossEntropyShard& c) {
    check_finish(c);
    by_dtype(c.dlogits.present() ? c.dlogits.dtype : Dtype::f32, [&](auto d) { finish_rows<decltype(d)>(c); });
}

}  // namespace

const CrossEntropyOps cross_entropy_cpu = {run, statistics, finish};

}  // namespace clover
