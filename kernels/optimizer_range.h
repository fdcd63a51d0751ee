// How the optimizers go through the parameters on the CPU: the elements of all segments in one parallel region, cut into blocks of one size, and
// within a block sixteen at a time. The bits do not depend on the number of threads.
#pragma once
#include <span>

#include "optimizer.h"
#include "parallel.h"
#include "simd_random.h"

namespace clover {

inline std::span<const Segment> segments_of(const Weights& w) {
    return {reinterpret_cast<const Segment*>(w.segments.as<int32_t>()), size_t(w.segments.shape[0])};
}

/// The segments are thought to lie one after the other in a row, so that a thousand short ones and a long one share the threads evenly.
class SegmentRow {
public:
    static constexpr int64_t block_size = 16384;

    explicit SegmentRow(const Weights& w) : segments_(segments_of(w)) {
        for (const Segment& s : segments_) {
            CLOVER_CHECK(fits(s, w.master.count()), "segment ", s.first, "+", s.count, " of ", w.master.count(), ", element ", s.element);
            length_ += padded(s.count);
        }
    }
    int64_t blocks() const { return (length_ + block_size - 1) / block_size; }
    /// From block to block and from segment to segment the number of the meeting grows by one: block + segment.
    int64_t meetings() const { return blocks() + int64_t(segments_.size()); }

    /// Calls f(k, first, count, meeting) by all threads for the elements [first, first + count) of segment k, which lie in one block. `first` is a multiple of
    /// 64 behind the segment's first.
    template <class F>
    void for_each(F&& f) const {
#pragma omp parallel if (length_ > parallel_above)
        {
            Place place{0, 0};
#pragma omp for schedule(static)
            for (int64_t block = 0; block < blocks(); block++) walk(block, place, f);
        }
    }

    /// changes (S, 3) = the sums of each segment's meetings.
    void sum(const Change* parts, float* changes) const {
        int64_t start = 0;
        for (size_t k = 0; k < segments_.size(); start += padded(segments_[k++].count)) {
            double total[3] = {};
            for (int64_t block = start / block_size; block * block_size < start + segments_[k].count; block++) {
                const Change& c = parts[block + int64_t(k)];
                total[0] += double(c.unchanged), total[1] += double(c.step_squares), total[2] += double(c.weight_squares);
            }
            for (int i = 0; i < 3; i++) changes[k * 3 + size_t(i)] = float(total[i]);
        }
    }

private:
    struct Place {
        size_t segment;
        int64_t start;  // of the segment in the row
    };
    /// Whole cache lines, so that the cuts fall between them.
    static int64_t padded(int64_t count) { return (count + 63) / 64 * 64; }

    template <class F>
    void walk(int64_t block, Place& p, F& f) const {
        const int64_t begin = block * block_size, end = std::min(length_, begin + block_size);
        const auto next = [&] { p.start += padded(segments_[p.segment++].count); };
        while (p.segment < segments_.size() && p.start + padded(segments_[p.segment].count) <= begin) next();
        for (; p.segment < segments_.size() && p.start < end; next()) {
            const Segment& s = segments_[p.segment];
            const int64_t from = std::max(begin - p.start, int64_t{0}), to = std::min(end - p.start, s.count);
            if (from < to) f(int64_t(p.segment), s.first + from, to - from, block + int64_t(p.segment));
            if (p.start + padded(s.count) > end) return;
        }
    }
    std::span<const Segment> segments_;
    int64_t length_ = 0;
};

/// Stores new values of elements [first, first + count) of a segment: new_value(i, old, lanes) returns those of elements i … as f32, from the old ones.
/// Copy is void where there is none. `change`, if not null, grows by what happened.
template <class Master, class Copy, class NewValue>
void update_range(const Weights& w, const Segment& s, int64_t first, int64_t count, Change* change, NewValue&& new_value) {
    using namespace simd;
    Master* const master = static_cast<Master*>(w.master.data);
    Copy* const copy = static_cast<Copy*>(w.copy.data);
    constexpr bool low_master = dtype_of<Master> == Dtype::bf16;
    const bool stochastic = w.rounding == Rounding::stochastic;
    const RoundingKey key{w.seed, s.key, uint32_t(w.step)};
    f32x16 unchanged{}, step_squares{}, weight_squares{};
    u32x16 noise[4] = {};
    for (int64_t block = 0; block < count; block += 64) {
        if (stochastic) rounding_noise(key, uint64_t(s.element + (first - s.first) + block), noise);
        for_vectors(std::min<int64_t>(64, count - block), [&](int64_t j, auto lanes) {
            const int64_t i = first + block + j;
            const auto rounded = [&](f32x16 x) { return stochastic ? round_stochastic(x, noise[j / width]) : round_nearest(x); };
            const f32x16 old = load(master + i, lanes);
            f32x16 x = new_value(i, old, lanes);
            if (low_master || s.coarse) x = rounded(x);
            store(master + i, x, lanes);
            if constexpr (dtype_of<Copy> == Dtype::bf16) store(copy + i, rounded(x), lanes);
            else if constexpr (!std::is_void_v<Copy>) store(copy + i, x, lanes);
            if (!change) return;
            const f32x16 step = x - old;
            unchanged += keep(select(x == old, splat(1), splat(0)), lanes);
            step_squares += keep(step * step, lanes);
            weight_squares += keep(old * old, lanes);
        });
    }
    if (change) *change = {change->unchanged + sum(unchanged), change->step_squares + sum(step_squares), change->weight_squares + sum(weight_squares)};
}

/// Calls f(Master*, Copy*) with null pointers of the dtypes at hand; Copy is void without a copy.
template <class F>
void by_weight_dtypes(const Weights& w, F&& f) {
    if (w.master.dtype == Dtype::bf16) return f(static_cast<bf16*>(nullptr), static_cast<void*>(nullptr));
    if (!w.copy.present()) return f(static_cast<float*>(nullptr), static_cast<void*>(nullptr));
    by_dtype(w.copy.dtype, [&](auto copy) { f(static_cast<float*>(nullptr), static_cast<decltype(copy)*>(nullptr)); });
}

/// Where a step changes nothing, it says so.
inline void clear_changes(const Weights& w) {
    if (w.changes.present()) std::fill_n(w.changes.as<float>(), w.changes.count(), 0.0f);
}

/// Calls update(segment, first, count, change) for all elements of all segments, by all threads, and gathers the changes where they are asked for.
template <class Update>
void for_segments(Context& ctx, const Weights& w, Update&& update) {
    const SegmentRow row(w);
    const WorkspaceScope scope(ctx.workspace);
    const std::span<const Segment> segments = segments_of(w);
    if (!w.changes.present())
        return row.for_each([&](int64_t k, int64_t first, int64_t count, int64_t) { update(segments[size_t(k)], first, count, nullptr); });
    Change* const parts = ctx.workspace.take<Change>(row.meetings());
    std::fill_n(parts, row.meetings(), Change{});
    row.for_each([&](int64_t k, int64_t first, int64_t count, int64_t meeting) { update(segments[size_t(k)], first, count, parts + meeting); });
    row.sum(parts, w.changes.as<float>());
}
inline size_t for_segments_workspace_bytes(const Weights& w) {
    if (!w.changes.present()) return 0;
    const int64_t most_blocks = (w.master.count() + 64 * w.segments.shape[0]) / SegmentRow::block_size + 1;
    return Workspace::padded(size_t(most_blocks + w.segments.shape[0]) * sizeof(Change));
}

}  // namespace clover
