// One head of one sequence as CPU attention works on it: its shape, its operands in f32, the scores of eight queries at a time.
//
// Queries are cut into strips of eight, keys into tiles. With M cached positions before them, query i stands at position M + i.
//   relative: S_ij = (q_i·k_j + q_i·r_d + c_j + e_d) / √D,   c_j = u·k_j,   e_d = v·r_d,   d = M + i − j.
// (c and e are vectors: u and v need no second and third Q; Dai et al. 2019, appendix B, for the shift.)
//
// The rows of r are packed in reverse: row R is distance P − R, where P = M + T − 1 with T rounded up to a whole strip. So for a
// fixed query both j and R ascend, and the shift of Transformer-XL is a load at an offset: the products q_i·r_d of a strip against n
// keys are one band of n + 7 columns, of which row i reads n from column 7 − i on. Neighbouring tiles overlap in those seven columns alone.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "attention.h"
#include "attention_tile.h"

namespace clover::attention {

/// Hands out 64-byte aligned arrays one after the other; without memory it only counts.
struct Carver {
    char* base = nullptr;
    size_t used = 0;
    float* operator()(int64_t n) {
        float* p = base ? reinterpret_cast<float*>(base + used) : nullptr;
        used += Workspace::padded(size_t(n) * sizeof(float));
        return p;
    }
};

struct HeadShape {
    int64_t queries, past, size;  // T, M, D
    AttentionPosition position;
    int64_t rows_at_once = strip;  // of the products; queries are padded to a multiple

    int64_t keys() const { return past + queries; }
    int64_t width() const { return round_up(size, simd::width); }
    int64_t query_rows() const { return round_up(queries, rows_at_once); }
    int64_t key_rows() const { return round_up(keys(), panel_columns); }
    /// P, the distance of reversed row 0.
    int64_t last_distance() const { return past + query_rows() - 1; }
    /// A strip or a vector may reach beyond distance 0.
    int64_t distance_rows() const { return round_up(last_distance() + 1, panel_columns) + panel_columns; }
    bool relative() const { return position == AttentionPosition::relative; }
    float scale() const { return float(1 / std::sqrt(double(size))); }
};

template <class T>
struct Head {
    HeadShape shape;
    Rows<T> q, k, v;     // (T, D), (M + T, D), (M + T, D)
    float slope;         // alibi
    Rows<T> r;           // relative: ascending distances 0 … M + T − 1
    Tensor u, v_bias;    // relative: (1, D), f32, bf16 or f16
};

/// Slope, r, u and v of head h; the rest of `head` is set.
template <class T>
void set_position(Head<T>& head, const PositionTerm& position, int64_t h) {
    const int64_t D = head.shape.size;
    head.slope = head.shape.position == AttentionPosition::alibi ? static_cast<const float*>(position.slopes.data)[h] : 0.0f;
    if (!head.shape.relative()) return;
    const int64_t C = position.r.columns();
    head.r = {static_cast<const T*>(position.r.data) + h * D, C, 0, head.shape.keys(), D};
    head.u = position.content_bias.row_range(h, 1);
    head.v_bias = position.position_bias.row_range(h, 1);
}

/// The packed operands that the scores need.
struct ScoreOperands {
    float* q;             // (query rows, width)
    float* k_transposed;  // panels
    float *u, *v_bias;    // (width)
    float *c, *e;         // (key rows), (distance rows)
    float* r_transposed;  // panels, reversed

    ScoreOperands(const HeadShape& s, Carver& take)
        : q(take(s.query_rows() * s.width())), k_transposed(take(s.key_rows() * s.width())) {
        const int64_t relative = s.relative() ? 1 : 0;
        u = take(relative * s.width());
        v_bias = take(relative * s.width());
        c = take(relative * s.key_rows());
        e = take(relative * s.distance_rows());
        r_transposed = take(relative * s.distance_rows() * s.width());
    }
};

/// r in reverse: row R at distance P − R. `s` is the head's shape with the padding in use.
template <class T>
Rows<T> reversed_distances(const Head<T>& head, const HeadShape& s) {
    const int64_t first = s.last_distance() - (s.keys() - 1);
    return {head.r.data + (s.keys() - 1) * head.r.stride, -head.r.stride, first, first + s.keys(), s.size};
}

/// u and v, padded with zeros to the width.
template <class T>
void pack_biases(const Head<T>& head, float* u, float* v_bias) {
    const HeadShape& s = head.shape;
    by_dtype(head.u.dtype, [&](auto element) {
        using Bias = decltype(element);
        copy_rows(Rows<Bias>{head.u.template as<Bias>(), 0, 0, 1, s.size}, 1, 1.0f, u, s.width());
        copy_rows(Rows<Bias>{head.v_bias.template as<Bias>(), 0, 0, 1, s.size}, 1, 1.0f, v_bias, s.width());
    });
}

template <class T>
void pack(const Head<T>& head, const ScoreOperands& to) {
    const HeadShape& s = head.shape;
    copy_rows(head.q, s.query_rows(), 1.0f, to.q, s.width());
    transpose_into_panels(head.k, s.key_rows(), to.k_transposed, s.width());
    if (!s.relative()) return;
    pack_biases(head, to.u, to.v_bias);
    transpose_into_panels(reversed_distances(head, s), s.distance_rows(), to.r_transposed, s.width());
    weighted_panel_sums(to.u, to.k_transposed, s.width(), s.key_rows(), to.c);
    weighted_panel_sums(to.v_bias, to.r_transposed, s.width(), s.distance_rows(), to.e);
}

/// A strip of queries against a tile of keys: query rows i … i + 7, keys j … j + n − 1 with j a multiple of 32.
struct StripTile {
    int64_t position;  // M + i
    int64_t j, n;

    /// How many of the tile's keys row x sees, at least 0; of the strip as a whole: the last row's.
    int64_t visible(int64_t x) const {
        const int64_t causal = position + x - j + 1;
        return causal < 0 ? 0 : causal < n ? causal : n;
    }
    int64_t visible() const { return visible(strip - 1); }
    /// The reversed distance of row 0 and key j. Key j + b is b further right, row x is x further left.
    int64_t reversed(int64_t last_distance) const { return last_distance - position + j; }
    /// The reversed distances that the strip needs, and the one in column 0 of its band.
    Range distances(const HeadShape& s) const {
        const int64_t R = reversed(s.last_distance());
        return {R - (s.rows_at_once - 1), std::min(R + n, s.last_distance() + 1)};
    }
    int64_t band_begin(const HeadShape& s) const { return round_down(distances(s).begin, simd::width); }
};

/// Columns of the band of one strip against `keys` keys, with the vectors' overhang.
constexpr int64_t band_columns(int64_t keys) { return round_up(keys, simd::width) + 3 * simd::width; }

/// S without the position's vectors: scores (8, row `score_row`) from column 0, and for relative the band (8, band_columns).
inline void multiply_scores(const HeadShape& s, const ScoreOperands& o, int64_t i, const StripTile& t, float* scores, int64_t score_row,
                            float* band, int64_t band_row) {
    const int64_t D = s.size, W = s.width();
    const Left q{o.q + i * W, W, 1};
    const int64_t panel = W * panel_columns;
    strip_product<false>({0, D}, q, {o.k_transposed + t.j / panel_columns * panel, panel_columns, panel}, {0, t.visible()}, scores,
                         score_row);
    if (!s.relative()) return;
    strip_product<false>({0, D}, q, {o.r_transposed, panel_columns, panel}, t.distances(s), band - t.band_begin(s), band_row);
}

/// S_ij for one query and the keys j + b …, sixteen at a time, from its products with keys and distances. Lanes of keys that the
/// query does not see hold anything.
template <AttentionPosition kind>
struct ScoreRow {
    const float *products, *band;  // q_i·k_j at column b and, relative, q_i·r_d at column b
    const float *c, *e;            // relative: c_j and e_d at element b
    float scale, slope;
    float first_offset;  // j − i of the tile's first key

    CLOVER_INLINE f32x16 operator()(int64_t b) const {
        constexpr f32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        if constexpr (kind == AttentionPosition::relative)
            return ((load(products + b) + load(band + b)) + (load(c + b) + load(e + b))) * scale;
        if constexpr (kind == AttentionPosition::alibi) return load(products + b) * scale + slope * (lane + (first_offset + float(b)));
        return load(products + b) * scale;
    }
};

/// The scores of row x of a strip whose products and band (from `band_begin(...)` on) are at `products` and `band`.
template <AttentionPosition kind>
ScoreRow<kind> score_row(const HeadShape& s, const float* c, const float* e, float slope, const StripTile& t, int64_t x,
                         const float* products, const float* band) {
    ScoreRow<kind> row{products, nullptr, nullptr, nullptr, s.scale(), slope, float(t.j - t.position - x)};
    if constexpr (kind == AttentionPosition::relative) {
        const int64_t R = t.reversed(s.last_distance()) - x;
        row.c = c + t.j;
        row.e = e + R;
        row.band = band + R - t.band_begin(s);
    }
    return row;
}

/// e^x, and 0 below e^-44: beside the row's greatest term such a one is nothing in f32, but what ALiBi makes of far keys would be
/// denormal numbers, which cost the processor over a hundred cycles each.
CLOVER_INLINE f32x16 exponential(f32x16 x) { return simd::select(x < -44.0f, f32x16{}, simd::exp(x)); }

/// Stores an operand of the next product.
CLOVER_INLINE void store_operand(float* p, f32x16 x) { store(p, x); }
CLOVER_INLINE void store_operand(bf16* p, f32x16 x) {
#if defined(__AVX512BF16__)
    const __m256bh rounded = _mm512_cvtneps_pbh((__m512)x);
    std::memcpy(p, &rounded, sizeof rounded);
#else
    store(p, x);
#endif
}

/// P = exp(S − m) of one query, by way of `scores`, which may be p; m and the sum move on. Returns what the older sums must be scaled by.
template <AttentionPosition kind, class P>
float softmax_row(const ScoreRow<kind>& score, int64_t visible, float* scores, P* p, float& maximum, float& sum) {
    if (visible == 0) return 1;
    f32x16 greatest = simd::splat(maximum);
    simd::for_vectors(visible, [&](int64_t b, auto lanes) {
        const f32x16 s = score(b);
        store(scores + b, s);
        greatest = simd::max(greatest, simd::keep(s, lanes, -INFINITY));
    });
    const float m = simd::max(greatest);
    f32x16 total{};
    simd::for_vectors(visible, [&](int64_t b, auto lanes) {
        const f32x16 e = simd::keep(exponential(load(scores + b) - m), lanes);
        store_operand(p + b, e);
        total += e;
    });
    const float older = maximum == -INFINITY ? 0.0f : std::exp(maximum - m);
    maximum = m;
    sum = sum * older + simd::sum(total);
    return older;
}

inline void scale_row(float* row, int64_t width, float factor) {
    for (int64_t c = 0; c < width; c += simd::width) store(row + c, load(row + c) * factor);
}

/// P and G = P (dO·v − D) / √D of one query from its scores and dO·v, which may be where P and G go.
template <AttentionPosition kind, class P>
void gradient_row(const ScoreRow<kind>& score, int64_t visible, float lse, float row_dot, const float* dp, P* p, P* g) {
    simd::for_vectors(visible, [&](int64_t b, auto lanes) {
        const f32x16 probability = simd::keep(exponential(score(b) - lse), lanes);
        const f32x16 gradient = simd::keep(probability * ((load(dp + b) - row_dot) * score.scale), lanes);
        store_operand(p + b, probability);
        store_operand(g + b, gradient);
    });
}

/// Calls f with the position as a type: the inner loops know it.
template <class F>
void by_position(AttentionPosition position, F&& f) {
    switch (position) {
        case AttentionPosition::none: return f(std::integral_constant<AttentionPosition, AttentionPosition::none>{});
        case AttentionPosition::alibi: return f(std::integral_constant<AttentionPosition, AttentionPosition::alibi>{});
        case AttentionPosition::relative: return f(std::integral_constant<AttentionPosition, AttentionPosition::relative>{});
    }
}

/// to row i = factor · from row i, rounded to T.
template <class T>
void store_rows(const float* from, int64_t width, int64_t count, int64_t columns, float factor, T* to, int64_t to_row) {
    for (int64_t i = 0; i < count; i++)
        simd::for_vectors(columns, [&](int64_t c, auto lanes) {
            if (i + prefetch_distance < count) __builtin_prefetch(to + (i + prefetch_distance) * to_row + c, 1);
            store(to + i * to_row + c, load(from + i * width + c) * factor, lanes);
        });
}

/// Where the forward of a head goes.
template <class T>
struct HeadOutput {
    T* out;  // (T, D), the rows `stride` apart
    int64_t stride;
    float* lse;  // (T), or null
};

size_t forward_scratch_bytes(const HeadShape&);
template <class T>
void forward_head(const Head<T>&, void* scratch, const HeadOutput<T>&);

/// Divides the sums of the forward, rows of `width`, by those of P and stores them, and lse.
template <class T>
void store_output(const HeadShape& s, const float* sums, int64_t width, const float* maximum, const float* sum, const HeadOutput<T>& to) {
    for (int64_t i = 0; i < s.queries; i++) {
        store_rows(sums + i * width, width, 1, s.size, 1 / sum[i], to.out + i * to.stride, to.stride);
        if (to.lse) to.lse[i] = maximum[i] + std::log(sum[i]);
    }
}

/// How many threads share `units` heads; workspace sizes and the parallel loop agree on it.
inline int head_threads(int64_t units) { return int(std::clamp<int64_t>(units, 1, omp_get_max_threads())); }

/// Calls body(unit, scratch) for every head, a scratch of `bytes` for each thread. Below some `work` (multiply-adds per head, about)
/// starting threads costs more than it saves.
template <class Body>
void for_heads(Context& ctx, int64_t units, size_t bytes, int64_t work, Body&& body) {
    WorkspaceScope scope(ctx.workspace);
    const int threads = head_threads(units);
    char* scratch = ctx.workspace.take<char>(int64_t(bytes) * threads);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1 && units * work > (1 << 18))
    for (int64_t unit = 0; unit < units; unit++) body(unit, scratch + size_t(omp_get_thread_num()) * bytes);
}

}  // namespace clover::attention
