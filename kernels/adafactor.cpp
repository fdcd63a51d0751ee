// Adafactor on the CPU; the layout of its statistics.
#include "adafactor.h"

#include <algorithm>
#include <cmath>

#include "optimizer_range.h"

namespace clover {

AdafactorLayout::AdafactorLayout(const std::vector<Segment>& segments, const std::vector<int64_t>& totals, int64_t min_factored) {
    CLOVER_CHECK(segments.size() == totals.size());
    const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    for (size_t k = 0; k < segments.size(); k++) {
        const Segment& s = segments[k];
        Factors f{.total = totals[k], .state = state, .sums = sums};
        CLOVER_CHECK(s.element + s.count <= f.total && (s.columns == 0 || f.total % s.columns == 0), "segment ", k, " of ", f.total, " elements");
        const int64_t rows = s.columns ? f.total / s.columns : 0;
        if (std::min(rows, s.columns) >= std::max<int64_t>(min_factored, 1)) {
            f.rows = rows, f.columns = s.columns;
            if (s.count > 0) f.first_row = s.element / s.columns, f.covered_rows = (s.element + s.count - 1) / s.columns + 1 - f.first_row;
            f.row_tiles = ceil(f.covered_rows, f.tile_rows()), f.slabs = ceil(f.columns, Factors::slab), f.partials = partials;
            for (int32_t tile = 0; tile < f.row_tiles; tile++)
                for (int32_t slab = 0; slab < f.slabs; slab++) tiles.push_back({int32_t(k), tile, slab});
            sums += f.rows + f.columns;
            partials += f.slabs * f.covered_rows + f.row_tiles * f.columns;
        }
        state += f.factored() ? f.rows + f.columns : s.count;
        factors.push_back(f);
    }
}

void check(const Adafactor& a) {
    check(a.weights);
    const int64_t n = a.weights.master.count(), segments = a.weights.segments.shape[0];
    CLOVER_CHECK(a.factors.has_shape({segments, factors_words}) && a.factors.dtype == Dtype::i32, a.factors.describe());
    CLOVER_CHECK(a.grad.has_shape({n}) && a.grad.dtype == Dtype::f32, a.grad.describe(), " where ", n, " f32 are expected");
    CLOVER_CHECK(!a.m.present() || (a.m.has_shape({n}) && a.m.dtype == Dtype::f32), a.m.describe(), " where ", n, " f32 are expected");
    CLOVER_CHECK(a.squares.has_shape({segments, 3}) && a.squares.dtype == Dtype::f32, a.squares.describe());
    CLOVER_CHECK(a.grad_scale.has_shape({1}) && a.grad_scale.dtype == Dtype::f32, a.grad_scale.describe());
    CLOVER_CHECK(a.state.rank == 1 && a.state.dtype == Dtype::f32, a.state.describe());
    CLOVER_CHECK(a.tiles.present() == a.sums.present(), a.tiles.describe(), ", ", a.sums.describe());
    CLOVER_CHECK(a.t >= 1, "step ", a.t);
}

AdafactorStep::AdafactorStep(const Adafactor& a)
    : beta2(float(1 - std::pow(double(a.t), -double(a.decay_exponent)))), lr(a.lr), beta1(a.m.present() ? a.beta1 : 0), eps1(a.eps1), eps2(a.eps2),
      clip(a.clip), parameter_scale(a.parameter_scale) {}

double adafactor_relative_step(int64_t t) { return std::min(0.01, 1 / std::sqrt(double(t))); }

namespace {
using namespace simd;

const Factors* factors_of(const Adafactor& a) { return reinterpret_cast<const Factors*>(a.factors.as<int32_t>()); }
float scale_of(const Adafactor& a) { return *a.grad_scale.as<float>(); }

// ---- statistics ----------------------------------------------------------------------------------------------------------------

/// Row and column sums of g² of one tile.
void sum_tile(const Adafactor& a, const FactorTile& tile, float scale, float* partials) {
    const Segment& s = segments_of(a.weights)[size_t(tile.segment)];
    const Factors& f = factors_of(a)[tile.segment];
    const int64_t row = f.first_row + tile.row_tile * f.tile_rows(), end_row = std::min(f.first_row + f.covered_rows, row + f.tile_rows());
    const int64_t column = tile.slab * Factors::slab, end_column = std::min(f.columns, column + Factors::slab);
    float* const row_sums = partials + f.partials + tile.slab * f.covered_rows - f.first_row;
    float* const column_sums = partials + f.partials + f.slabs * f.covered_rows + tile.row_tile * f.columns;
    std::fill(column_sums + column, column_sums + end_column, 0.0f);
    for (int64_t r = row; r < end_row; r++) {
        // The columns of this row that are the segment's.
        const int64_t first = std::max(column, s.element - r * f.columns), end = std::min(end_column, s.element + s.count - r * f.columns);
        const float* const g = a.grad.as<float>() + s.first + (r * f.columns - s.element);
        f32x16 sum{};
        for_vectors(std::max<int64_t>(0, end - first), [&](int64_t j, auto lanes) {
            const f32x16 x = load(g + first + j, lanes) * scale, square = keep(x * x, lanes);
            sum += square;
            store(column_sums + first + j, load(column_sums + first + j, lanes) + square, lanes);
        });
        row_sums[r] = simd::sum(sum);
    }
}

/// sums of one segment = its tiles' partial sums, added in order.
void fold(const Segment& s, const Factors& f, const float* partials, float* sums) {
    std::fill_n(sums, f.rows + f.columns, 0.0f);
    if (s.count == 0) return;
    for (int64_t slab = 0; slab < f.slabs; slab++)
        for (int64_t r = 0; r < f.covered_rows; r++) sums[f.first_row + r] += partials[slab * f.covered_rows + r];
    const float* const column_sums = partials + f.slabs * f.covered_rows;
    for (int64_t tile = 0; tile < f.row_tiles; tile++)
        for (int64_t c = 0; c < f.columns; c++) sums[f.rows + c] += column_sums[tile * f.columns + c];
}

void statistics(Context& ctx, const Adafactor& a) {
    check(a);
    const float scale = scale_of(a);
    if (std::isnan(scale) || !a.tiles.present()) return;
    const WorkspaceScope scope(ctx.workspace);
    float* const partials = ctx.workspace.take<float>(a.partials);
    const auto* const tiles = reinterpret_cast<const FactorTile*>(a.tiles.as<int32_t>());
    const std::span<const Segment> segments = segments_of(a.weights);
#pragma omp parallel if (a.weights.master.count() > parallel_above)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < a.tiles.shape[0]; i++) sum_tile(a, tiles[i], scale, partials);
#pragma omp for schedule(dynamic)
        for (size_t k = 0; k < segments.size(); k++)
            if (const Factors& f = factors_of(a)[k]; f.factored()) fold(segments[k], f, partials + f.partials, a.sums.as<float>() + f.sums);
    }
}

// ---- squares -------------------------------------------------------------------------------------------------------------------

/// R and C of one parameter, and in place of its sums √(mean(R) / R_i) and √(1 / C_j), whose product is u / g.
void update_factors(const AdafactorStep& step, const Factors& f, float* state, float* sums) {
    double total = 0;
    for (int64_t r = 0; r < f.rows; r++) {
        state[r] = step.decayed(state[r], sums[r] / float(f.columns) + step.eps1);
        total += double(state[r]);
    }
    const float mean = float(total / double(f.rows));
    for (int64_t r = 0; r < f.rows; r++) sums[r] = std::sqrt(mean / state[r]);
    for (int64_t c = f.rows; c < f.rows + f.columns; c++) {
        state[c] = step.decayed(state[c], sums[c] / float(f.rows) + step.eps1);
        sums[c] = 1 / std::sqrt(state[c]);
    }
}

/// u / g of a factored parameter for one vector of elements after the other, without gaps.
class FactorCursor {
public:
    FactorCursor(const Factors& f, const float* sums, int64_t element)
        : rows_(sums + f.sums), columns_(rows_ + f.rows), width_(f.columns), row_(element / f.columns), column_(element % f.columns) {}
    template <class Lanes>
    f32x16 next(Lanes lanes) {
        const int64_t count = int64_t(lanes);
        f32x16 x;
        if (column_ + count <= width_) {
            x = rows_[row_] * load(columns_ + column_, lanes);
            column_ += count;
            if (column_ == width_) column_ = 0, row_++;
            return x;
        }
        float each[width] = {};
        for (int64_t j = 0; j < count; j++) {
            each[j] = rows_[row_] * columns_[column_];
            if (++column_ == width_) column_ = 0, row_++;
        }
        return load(each);
    }

private:
    const float *rows_, *columns_;
    int64_t width_, row_, column_;
};

template <class Master>
void squares_of(const Adafactor& a, const AdafactorStep& step, const Factors& f, const Segment& s, int64_t first, int64_t count, Change* change) {
    const float* const grad = a.grad.as<float>() + first;
    const Master* const w = static_cast<const Master*>(a.weights.master.data) + first;
    float* const v = a.state.as<float>() + f.state + (first - s.first);
    f32x16 update_squares{}, weight_squares{};
    const auto add = [&](int64_t i, f32x16 u, auto lanes) {
        update_squares += keep(u * u, lanes);
        if (!step.parameter_scale) return;
        const f32x16 x = keep(load(w + i, lanes), lanes);
        weight_squares += x * x;
    };
    if (f.factored()) {
        FactorCursor factor(f, a.sums.as<float>(), s.element + (first - s.first));
        for_vectors(count, [&](int64_t i, auto lanes) { add(i, load(grad + i, lanes) * step.scale * factor.next(lanes), lanes); });
    } else {
        for_vectors(count, [&](int64_t i, auto lanes) {
            const f32x16 g = load(grad + i, lanes) * step.scale, v_new = step.beta2 * load(v + i, lanes) + (1 - step.beta2) * (g * g + step.eps1);
            store(v + i, v_new, lanes);
            add(i, g / sqrt(v_new), lanes);
        });
    }
    change->step_squares += sum(update_squares), change->weight_squares += sum(weight_squares);
}

void squares(Context& ctx, const Adafactor& a) {
    check(a);
    AdafactorStep step(a);
    step.scale = scale_of(a);
    const Weights weights = with_squares(a);
    if (std::isnan(step.scale)) return clear_changes(weights);
    const std::span<const Segment> segments = segments_of(weights);
#pragma omp parallel for schedule(dynamic) if (a.sums.present() && a.weights.master.count() > parallel_above)
    for (size_t k = 0; k < segments.size(); k++)
        if (const Factors& f = factors_of(a)[k]; f.factored()) update_factors(step, f, a.state.as<float>() + f.state, a.sums.as<float>() + f.sums);
    by_storage(weights.master.dtype, [&]<class Master>(Master) {
        for_segments(ctx, weights, [&](const Segment& s, int64_t first, int64_t count, Change* change) {
            squares_of<Master>(a, step, factors_of(a)[&s - segments.data()], s, first, count, change);
        });
    });
}

// ---- update --------------------------------------------------------------------------------------------------------------------

template <class Master, class Copy>
void update_part(const Adafactor& a, const AdafactorStep& step, int64_t k, const Segment& s, int64_t first, int64_t count, Change* change) {
    const Factors& f = factors_of(a)[k];
    const float* const grad = a.grad.as<float>();
    const float* const v = a.state.as<float>() + f.state - s.first;
    float* const m = a.m.present() ? a.m.as<float>() : nullptr;
    const float rate = step.rate(f, reinterpret_cast<const Change*>(a.squares.as<float>())[k]), decay = step.lr * s.weight_decay, beta1 = step.beta1;
    const auto store_update = [&](auto&& u_of) {
        update_range<Master, Copy>(a.weights, s, first, count, change, [=](int64_t i, f32x16 w, auto lanes) mutable {
            f32x16 x = rate * u_of(i, load(grad + i, lanes) * step.scale, lanes);
            if (m) {
                x = beta1 * load(m + i, lanes) + (1 - beta1) * x;
                store(m + i, x, lanes);
            }
            return w - x - decay * w;
        });
    };
    if (f.factored())
        store_update([factor = FactorCursor(f, a.sums.as<float>(), s.element + (first - s.first))](int64_t, f32x16 g, auto lanes) mutable { return g * factor.next(lanes); });
    else
        store_update([=](int64_t i, f32x16 g, auto lanes) { return g / sqrt(load(v + i, lanes)); });
}

void update(Context& ctx, const Adafactor& a) {
    check(a);
    AdafactorStep step(a);
    step.scale = scale_of(a);
    if (std::isnan(step.scale)) return clear_changes(a.weights);
    const std::span<const Segment> segments = segments_of(a.weights);
    by_weight_dtypes(a.weights, [&]<class Master, class Copy>(Master*, Copy*) {
        for_segments(ctx, a.weights, [&](const Segment& s, int64_t first, int64_t count, Change* change) {
            update_part<Master, Copy>(a, step, &s - segments.data(), s, first, count, change);
        });
    });
}

size_t workspace_bytes(const Adafactor& a) { return std::max(partials_bytes(a), for_segments_workspace_bytes(with_squares(a))); }

}  // namespace

const AdafactorOps adafactor_cpu = {workspace_bytes, statistics, squares, update};

}  // namespace clover
