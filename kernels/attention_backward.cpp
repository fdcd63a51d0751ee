// The backward of one head: tiles of keys outside, tiles of queries inside. Of a tile (query rows a, keys b) the strips of queries give
//   P = exp(S − lse)      G = P (dO Vᵀ − D) / √D      dQ += G K
// and then the strips of keys, over all queries of the tile,
//   dV += Pᵀ dO           dK += Gᵀ Q.
// Relative: G is stored a second time, un-skewed: a row for each query, a column for each distance (ascending reversed distance,
// attention_head.h), element (a, b) at column b − a + (rows − 1). Then dQ += Gs r and dr += Gsᵀ Q are products like the others. The
// column sums of G and Gs give the rest (Σ_a G_ab multiplies u in dk_b and k_b in du; likewise v and r).
#include "attention_backward.h"

namespace clover::attention {
namespace {

constexpr int64_t query_tile = 64;
constexpr int64_t key_tile = 256;
// Zeros on both sides of an un-skewed row: strips and vectors reach over its ends.
constexpr int64_t margin = simd::width;

struct BackwardScratch {
    ScoreOperands score;
    int64_t tile_row, skewed_row, band_row;
    float *k, *dout, *v_transposed;  // (key rows, width), (query rows, width), panels
    float* row_dot;                  // (T): D_i = dO_i·O_i
    float *dq, *dk, *dv;             // (rows, width)
    float *p, *g;                    // (query_tile, tile_row)
    float *key_sums, *distance_sums;  // relative: Σ_i G_ij per key, Σ_i G_i,i−d per reversed distance
    float *r, *dr;                    // relative: (distance rows, width), reversed
    float *skewed, *band;             // relative: (query_tile, skewed_row), (8, band_row)

    BackwardScratch(const HeadShape& s, Carver& take) : score(s, take) {
        const int64_t keys = round_up(std::min(s.keys(), key_tile), panel_columns), W = s.width();
        const int64_t relative = s.relative() ? 1 : 0;
        tile_row = keys + simd::width;
        skewed_row = keys + query_tile + 3 * margin;
        band_row = band_columns(keys);
        k = take(s.key_rows() * W);
        dout = take(s.query_rows() * W);
        v_transposed = take(s.key_rows() * W);
        row_dot = take(s.queries);
        dq = take(s.query_rows() * W);
        dk = take(s.key_rows() * W);
        dv = take(s.key_rows() * W);
        p = take(query_tile * tile_row);
        g = take(query_tile * tile_row);
        key_sums = take(relative * s.key_rows());
        distance_sums = take(relative * s.distance_rows());
        r = take(relative * s.distance_rows() * W);
        dr = take(relative * s.distance_rows() * W);
        skewed = take(relative * query_tile * skewed_row);
        band = take(relative * strip * band_row);
    }
};

template <class T>
void pack(const Head<T>& head, const HeadGradients<T>& grad, const BackwardScratch& f) {
    const HeadShape& s = head.shape;
    const int64_t W = s.width();
    pack(head, f.score);
    copy_rows(head.k, s.key_rows(), 1.0f, f.k, W);
    copy_rows(grad.dout, s.query_rows(), 1.0f, f.dout, W);
    transpose_into_panels(head.v, s.key_rows(), f.v_transposed, W);
    for (int64_t i = 0; i < s.queries; i++) {
        f32x16 dot{};
        for (int64_t c = 0; c < W; c += simd::width) dot += load(f.dout + i * W + c) * grad.out.piece(i, c);
        f.row_dot[i] = simd::sum(dot);
    }
    std::fill_n(f.dq, s.query_rows() * W, 0.0f);
    std::fill_n(f.dk, s.key_rows() * W, 0.0f);
    std::fill_n(f.dv, s.key_rows() * W, 0.0f);
    if (!s.relative()) return;
    copy_rows(reversed_distances(head, s), s.distance_rows(), 1.0f, f.r, W);
    std::fill_n(f.dr, s.distance_rows() * W, 0.0f);
    std::fill_n(f.key_sums, s.key_rows(), 0.0f);
    std::fill_n(f.distance_sums, s.distance_rows(), 0.0f);
}

/// Query rows i … i + rows − 1 against keys j … j + keys − 1. i and j are multiples of 8, and i >= j.
struct Tile {
    int64_t i, rows, j, keys;

    StripTile strip_at(int64_t a) const { return {i + a, j, keys}; }
    int64_t padded_rows() const { return round_up(rows, strip); }
    /// Columns of the un-skewed tile: distances down to 0.
    int64_t distances() const { return std::min(padded_rows() - 1 + keys, padded_rows() + i - j); }
    /// The reversed distance of un-skewed column 0.
    int64_t first_distance(const HeadShape& s) const { return s.last_distance() - (i - j + padded_rows() - 1); }
    /// The rows that see one of keys b … b + 7 of the tile.
    Range rows_of_keys(int64_t b) const { return {std::max(int64_t{0}, j + b - i), rows}; }
    /// The rows that have one of the un-skewed columns column … column + n − 1.
    Range rows_of_distances(int64_t column, int64_t n) const {
        return {std::max(int64_t{0}, padded_rows() - column - n), std::min(rows, padded_rows() - 1 + keys - column)};
    }
    /// The un-skewed columns of the strip of rows a … a + 7.
    Range distances_of_rows(int64_t a) const {
        return {padded_rows() - strip - a, std::min(padded_rows() - 1 - a + keys, padded_rows() + i - j)};
    }
};

/// A row of G to where its first key goes in the un-skewed tile, zeros beside it.
void skew_row(const float* g, int64_t visible, float* skewed) {
    store(skewed - margin, f32x16{});
    for (int64_t b = 0; b < visible; b += simd::width) store(skewed + b, load(g + b));
    store(skewed + round_up(visible, simd::width), f32x16{});
}

/// P, G (and Gs) of one strip of queries, and its dQ.
template <AttentionPosition kind>
void backward_queries(const HeadShape& s, const BackwardScratch& f, float slope, const float* lse, const Tile& tile, int64_t a) {
    const int64_t W = s.width(), i = tile.i + a, D = s.size, panel = W * panel_columns;
    const StripTile t = tile.strip_at(a);
    float *p = f.p + a * f.tile_row, *g = f.g + a * f.tile_row;
    multiply_scores(s, f.score, i, t, p, f.tile_row, f.band, f.band_row);
    strip_product<false>({0, D}, {f.dout + i * W, W, 1}, {f.v_transposed + t.j / panel_columns * panel, panel_columns, panel},
                         {0, t.visible()}, g, f.tile_row);
    for (int64_t x = 0; x < std::min(strip, tile.rows - a); x++) {
        float *p_row = p + x * f.tile_row, *g_row = g + x * f.tile_row;
        const auto score = score_row<kind>(s, f.score.c, f.score.e, slope, t, x, p_row, f.band + x * f.band_row);
        gradient_row(score, t.visible(x), lse[i + x], f.row_dot[i + x], g_row, p_row, g_row);
        if constexpr (kind == AttentionPosition::relative)
            skew_row(g_row, t.visible(x), f.skewed + (a + x) * f.skewed_row + margin + tile.padded_rows() - 1 - a - x);
    }
    strip_product<true>({0, t.visible()}, {g, f.tile_row, 1}, {f.k + t.j * W, W, panel_columns}, {0, W}, f.dq + i * W, W);
    if constexpr (kind == AttentionPosition::relative)
        strip_product<true>(tile.distances_of_rows(a), {f.skewed + a * f.skewed_row + margin, f.skewed_row, 1},
                            {f.r + tile.first_distance(s) * W, W, panel_columns}, {0, W}, f.dq + i * W, W);
}

/// dV, dK (and dr) of one tile whose P, G (and Gs) are there.
void backward_keys(const HeadShape& s, const BackwardScratch& f, const Tile& tile) {
    const int64_t W = s.width(), keys = std::min(tile.keys, tile.i + tile.rows - tile.j);
    const Right q{f.score.q + tile.i * W, W, panel_columns}, dout{f.dout + tile.i * W, W, panel_columns};
    for (int64_t b = 0; b < keys; b += strip) {
        const Range rows = tile.rows_of_keys(b);
        strip_product<true>(rows, {f.p + b, 1, f.tile_row}, dout, {0, W}, f.dv + (tile.j + b) * W, W);
        strip_product<true>(rows, {f.g + b, 1, f.tile_row}, q, {0, W}, f.dk + (tile.j + b) * W, W);
    }
    if (!s.relative()) return;
    const int64_t first = tile.first_distance(s);
    for (int64_t d = 0; d < tile.distances(); d += strip)
        strip_product<true>(tile.rows_of_distances(d, strip), {f.skewed + margin + d, 1, f.skewed_row}, q, {0, W},
                            f.dr + (first + d) * W, W);
    for (int64_t b = 0; b < keys; b += simd::width)
        add_column_sums(f.g + b, f.tile_row, tile.rows_of_keys(b), f.key_sums + tile.j + b);
    for (int64_t d = 0; d < tile.distances(); d += simd::width)
        add_column_sums(f.skewed + margin + d, f.skewed_row, tile.rows_of_distances(d, simd::width), f.distance_sums + first + d);
}

template <AttentionPosition kind>
void backward_tiles(const HeadShape& s, const BackwardScratch& f, float slope, const float* lse) {
    for (int64_t j = 0; j < s.keys(); j += key_tile)
        for (int64_t i = j; i < s.queries; i += query_tile) {
            const Tile tile{i, std::min(query_tile, s.queries - i), j, std::min(key_tile, s.keys() - j)};
            for (int64_t a = 0; a < tile.rows; a += strip) backward_queries<kind>(s, f, slope, lse, tile, a);
            backward_keys(s, f, tile);
        }
}

/// to = Σ_n weights[n] rows[n], the rows `width` wide.
void weighted_row_sum(const float* weights, const float* rows, int64_t count, int64_t width, int64_t columns, float* to) {
    for (int64_t c = 0; c < columns; c += simd::width) {
        f32x16 total{};
        for (int64_t n = 0; n < count; n++) total += weights[n] * load(rows + n * width + c);
        store(to + c, total, std::min(simd::width, columns - c));
    }
}

/// row n of m += weights[n] · vector.
void add_outer_product(const float* weights, const float* vector, int64_t count, int64_t width, float* m) {
    for (int64_t n = 0; n < count; n++)
        for (int64_t c = 0; c < width; c += simd::width) store(m + n * width + c, load(m + n * width + c) + weights[n] * load(vector + c));
}

/// What u and v add to dk and dr, and their own gradients; dr leaves in ascending order of distance.
void finish_relative(const HeadShape& s, const BackwardScratch& f, float* dr, float* du, float* dv_bias) {
    const int64_t W = s.width(), D = s.size, rows = s.last_distance() + 1;
    add_outer_product(f.key_sums, f.score.u, s.keys(), W, f.dk);
    add_outer_product(f.distance_sums, f.score.v_bias, rows, W, f.dr);
    weighted_row_sum(f.key_sums, f.k, s.keys(), W, D, du);
    weighted_row_sum(f.distance_sums, f.r, rows, W, D, dv_bias);
    for (int64_t d = 0; d < s.keys(); d++) store_rows(f.dr + (s.last_distance() - d) * W, W, 1, D, 1.0f, dr + d * D, D);
}

}  // namespace

size_t backward_scratch_bytes(const HeadShape& shape) {
    Carver count;
    BackwardScratch(shape, count);
    return count.used;
}

template <class T>
void backward_head(const Head<T>& head, void* scratch, const HeadGradients<T>& grad) {
    const HeadShape& s = head.shape;
    Carver take{static_cast<char*>(scratch)};
    const BackwardScratch f(s, take);
    pack(head, grad, f);
    by_position(s.position, [&](auto kind) { backward_tiles<kind()>(s, f, head.slope, grad.lse); });
    if (s.relative()) finish_relative(s, f, grad.dr, grad.du, grad.dv_bias);
    store_rows(f.dq, s.width(), s.queries, s.size, 1.0f, grad.dq, grad.stride);
    store_rows(f.dk, s.width(), s.keys(), s.size, 1.0f, grad.dk, grad.stride);
    store_rows(f.dv, s.width(), s.keys(), s.size, 1.0f, grad.dv, grad.stride);
}
template void backward_head(const Head<float>&, void*, const HeadGradients<float>&);
template void backward_head(const Head<bf16>&, void*, const HeadGradients<bf16>&);
template void backward_head(const Head<f16>&, void*, const HeadGradients<f16>&);

}  // namespace clover::attention
