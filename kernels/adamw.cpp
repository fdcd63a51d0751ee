// AdamW on the CPU: one parallel region over all segments, each element read and written once. The segments are thought to lie one after
// the other and are cut into blocks of one size, so that a thousand short ones and a long one share the threads evenly.
#include "adamw.h"

#include <cmath>
#include <span>

#include "parallel.h"

namespace clover {
namespace {
using namespace simd;

constexpr int64_t block_size = 16384;

/// Length in the row of segments; whole cache lines, so that the cuts fall between them.
int64_t padded(int64_t count) { return (count + 63) / 64 * 64; }

/// The numbers that all elements of a step share.
struct Step {
    float grad_scale, lr, beta1, beta2, eps, m_correction, v_correction;
    explicit Step(const Adamw& a)
        : grad_scale(*a.grad_scale.as<float>()), lr(a.lr), beta1(a.beta1), beta2(a.beta2), eps(a.eps),
          m_correction(float(1 / (1 - std::pow(double(a.beta1), double(a.t))))),
          v_correction(float(1 / (1 - std::pow(double(a.beta2), double(a.t))))) {}
};

std::span<const AdamwSegment> segments_of(const Adamw& a) {
    return {reinterpret_cast<const AdamwSegment*>(a.segments.as<int32_t>()), size_t(a.segments.shape[0])};
}

/// Walks the row of segments; the places asked for must ascend.
class SegmentWalk {
public:
    explicit SegmentWalk(std::span<const AdamwSegment> segments) : segment_(segments.data()), end_(segment_ + segments.size()) {}

    /// Calls f(segment, first, count) for the elements at places [begin, end) of the row.
    template <class F>
    void range(int64_t begin, int64_t end, F&& f) {
        while (segment_ < end_ && start_ + padded(segment_->count) <= begin) next();
        for (; segment_ < end_ && start_ < end; next()) {
            const int64_t from = std::max(begin - start_, int64_t{0}), to = std::min(end - start_, segment_->count);
            if (from < to) f(*segment_, segment_->first + from, to - from);
            if (start_ + padded(segment_->count) > end) return;
        }
    }

private:
    void next() { start_ += padded(segment_++->count); }
    const AdamwSegment *segment_, *end_;
    int64_t start_ = 0;
};

template <bool with_copy>
void update_elements(const Adamw& a, const Step s, float weight_decay, int64_t first, int64_t count) {
    float *const master = a.master.as<float>() + first, *const m = a.m.as<float>() + first, *const v = a.v.as<float>() + first;
    bf16* const copy = with_copy ? a.copy.as<bf16>() + first : nullptr;
    const float* const grad = a.grad.as<float>() + first;
    for_vectors(count, [=](int64_t i, auto lanes) {
        const f32x16 g = load(grad + i, lanes) * s.grad_scale;
        const f32x16 m_new = s.beta1 * load(m + i, lanes) + (1 - s.beta1) * g;
        const f32x16 v_new = s.beta2 * load(v + i, lanes) + (1 - s.beta2) * g * g;
        const f32x16 w = load(master + i, lanes);
        const f32x16 direction = (m_new * s.m_correction) / (sqrt(v_new * s.v_correction) + s.eps) + weight_decay * w;
        const f32x16 w_new = w - s.lr * direction;
        store(m + i, m_new, lanes);
        store(v + i, v_new, lanes);
        store(master + i, w_new, lanes);
        if constexpr (with_copy) store(copy + i, w_new, lanes);
    });
}

void check_segments(const Adamw& a) {
    const int64_t n = a.master.count();
    for (const AdamwSegment& s : segments_of(a))
        CLOVER_CHECK(s.first >= 0 && s.count >= 0 && s.count <= n - s.first, "segment ", s.first, "+", s.count, " of ", n);
}

void update(Context&, const Adamw& a) {
    check(a);
    check_segments(a);
    const Step step(a);
    if (std::isnan(step.grad_scale)) return;
    const std::span<const AdamwSegment> segments = segments_of(a);
    int64_t total = 0;
    for (const AdamwSegment& s : segments) total += padded(s.count);
#pragma omp parallel if (total > parallel_above)
    {
        SegmentWalk walk(segments);
#pragma omp for schedule(static)
        for (int64_t begin = 0; begin < total; begin += block_size)
            walk.range(begin, std::min(total, begin + block_size), [&](const AdamwSegment& s, int64_t first, int64_t count) {
                a.copy.present() ? update_elements<true>(a, step, s.weight_decay, first, count)
                                 : update_elements<false>(a, step, s.weight_decay, first, count);
            });
    }
}

}  // namespace

const AdamwOps adamw_cpu = {update};

}  // namespace clover
