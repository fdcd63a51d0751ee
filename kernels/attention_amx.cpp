// Heads of bf16 activations by AMX. As attention_forward.cpp and attention_backward.cpp, with strips of 32 queries; what differs
// follows from the layout of the right operand, pairs of rows (attention_amx_tile.h). Products whose sums run over queries are
// taken transposed, so that the strip's P and G need only be interleaved, row with row:
//   dVᵀ += dOᵀ P      dKᵀ += Qᵀ G      drᵀ += Qᵀ Gs      with dOᵀ and Qᵀ transposed once per head.
#include "attention_amx.h"

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)

#include <sys/syscall.h>
#include <unistd.h>

#include "attention_amx_tile.h"

namespace clover::attention::amx {
namespace {

constexpr int64_t key_tile = 256;
constexpr int64_t query_tile = 64;

/// The shape with the padding of this file's products.
HeadShape padded(HeadShape s) {
    s.rows_at_once = strip_rows;
    return s;
}
int64_t width(const HeadShape& s) { return round_up(s.size, terms); }

bf16* take_bf16(Carver& take, int64_t n) { return reinterpret_cast<bf16*>(take((n + 1) / 2)); }

/// What the scores need, and their tiles.
struct ScoreScratch {
    int64_t W, tile_row, band_row;
    bf16 *q, *k_transposed, *r_transposed;  // (query rows, W); right operands of (W, key rows), (W, distance rows)
    float *u, *v_bias, *c, *e;              // (W), (W), (key rows), (distance rows)
    float *scores, *band;                   // (32, tile_row), (32, band_row)

    ScoreScratch(const HeadShape& s, Carver& take) : W(width(s)) {
        const int64_t relative = s.relative() ? 1 : 0, keys = std::min(s.key_rows(), key_tile);
        tile_row = keys + terms;
        band_row = band_columns(keys) + strip_rows;
        q = take_bf16(take, s.query_rows() * W);
        k_transposed = take_bf16(take, s.key_rows() * W);
        r_transposed = take_bf16(take, relative * s.distance_rows() * W);
        u = take(relative * W);
        v_bias = take(relative * W);
        c = take(relative * s.key_rows());
        e = take(relative * s.distance_rows());
        scores = take(strip_rows * tile_row);
        band = take(relative * strip_rows * band_row);
    }
};

void pack(const Head<bf16>& head, const HeadShape& s, const Rows<bf16>& r_reversed, const ScoreScratch& f) {
    pack_left(head.q, s.query_rows(), f.q, f.W);
    pack_transposed_right(head.k, s.key_rows(), f.k_transposed, f.W);
    if (!s.relative()) return;
    std::fill_n(f.u, f.W, 0.0f);
    std::fill_n(f.v_bias, f.W, 0.0f);
    pack_biases(head, f.u, f.v_bias);
    pack_transposed_right(r_reversed, s.distance_rows(), f.r_transposed, f.W);
    weighted_column_sums(f.u, f.k_transposed, f.W, s.key_rows(), f.c);
    weighted_column_sums(f.v_bias, f.r_transposed, f.W, s.distance_rows(), f.e);
}

/// The keys that any row of the strip sees.
int64_t visible_keys(const StripTile& t) { return t.visible(strip_rows - 1); }

void multiply_scores(const HeadShape& s, const ScoreScratch& f, int64_t i, const StripTile& t) {
    const Left q{f.q + i * f.W, f.W};
    const int64_t panel = f.W * tile;
    strip_product<false>({0, f.W}, q, {f.k_transposed + t.j * f.W, panel}, {0, visible_keys(t)}, f.scores, f.tile_row);
    if (!s.relative()) return;
    strip_product<false>({0, f.W}, q, {f.r_transposed, panel}, t.distances(s), f.band - t.band_begin(s), f.band_row);
}

/// Zeros from `begin`, a multiple of 16, up to `end`, another.
void clear(bf16* row, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; n += tile) store_bits(row + n, simd::u16x16{});
}

// ---- forward ----

struct ForwardScratch {
    ScoreScratch score;
    bf16 *v, *p;                  // right operand of (key rows, W); (32, tile_row)
    float *out, *maximum, *sum;  // (query rows, W), (query rows), (query rows)

    ForwardScratch(const HeadShape& s, Carver& take)
        : score(s, take),
          v(take_bf16(take, s.key_rows() * score.W)),
          p(take_bf16(take, strip_rows * score.tile_row)),
          out(take(s.query_rows() * score.W)),
          maximum(take(s.query_rows())),
          sum(take(s.query_rows())) {}
};

template <AttentionPosition kind>
void forward_strip(const HeadShape& s, const ForwardScratch& f, float slope, int64_t i, const StripTile& t) {
    const ScoreScratch& o = f.score;
    const int64_t keys = visible_keys(t);
    multiply_scores(s, o, i, t);
    for (int64_t x = 0; x < std::min(strip_rows, s.queries - i); x++) {
        const int64_t visible = t.visible(x);
        float* scores = o.scores + x * o.tile_row;
        bf16* p = f.p + x * o.tile_row;
        const auto score = score_row<kind>(s, o.c, o.e, slope, t, x, scores, o.band + x * o.band_row);
        const float older = softmax_row(score, visible, scores, p, f.maximum[i + x], f.sum[i + x]);
        clear(p, round_up(visible, simd::width), round_up(keys, terms));
        if (t.j > 0 && older != 1) scale_row(f.out + (i + x) * o.W, o.W, older);
    }
    const Left p{f.p, o.tile_row};
    const Right v{f.v + t.j * tile, s.key_rows() * tile};
    if (t.j == 0)
        strip_product<false>({0, keys}, p, v, {0, o.W}, f.out + i * o.W, o.W);
    else
        strip_product<true>({0, keys}, p, v, {0, o.W}, f.out + i * o.W, o.W);
}

template <AttentionPosition kind>
void forward_tiles(const HeadShape& s, const ForwardScratch& f, float slope) {
    for (int64_t j = 0; j < s.keys(); j += key_tile)
        for (int64_t i = round_down(std::max(int64_t{0}, j - s.past), strip_rows); i < s.queries; i += strip_rows)
            forward_strip<kind>(s, f, slope, i, {s.past + i, j, std::min(key_tile, s.keys() - j)});
}

// ---- backward ----

struct BackwardScratch {
    ScoreScratch score;
    int64_t skewed_row;
    bf16 *dout, *v_transposed, *k;           // (query rows, W); right operands of (W, key rows), (key rows, W)
    bf16 *q_transposed, *dout_transposed;    // (W, query rows)
    float* row_dot;                          // (query rows): D_i
    float *dq, *dk, *dv;                     // (query rows, W), (W, key rows) twice
    float* dp;                               // (32, tile_row)
    bf16 *p, *g, *p_pairs, *g_pairs;         // (32, tile_row) twice; right operands of (query_tile, tile_row) twice
    float *key_sums, *distance_sums;         // relative
    bf16 *r, *skewed, *skewed_pairs;         // relative: right operand of (distance rows, W); (32, skewed_row), and as right operand
    float* dr;                               // relative: (W, distance rows), reversed

    BackwardScratch(const HeadShape& s, Carver& take) : score(s, take) {
        const int64_t W = score.W, relative = s.relative() ? 1 : 0;
        skewed_row = score.tile_row + query_tile + terms;
        dout = take_bf16(take, s.query_rows() * W);
        v_transposed = take_bf16(take, s.key_rows() * W);
        k = take_bf16(take, s.key_rows() * W);
        q_transposed = take_bf16(take, s.query_rows() * W);
        dout_transposed = take_bf16(take, s.query_rows() * W);
        row_dot = take(s.query_rows());
        dq = take(s.query_rows() * W);
        dk = take(s.key_rows() * W);
        dv = take(s.key_rows() * W);
        dp = take(strip_rows * score.tile_row);
        p = take_bf16(take, strip_rows * score.tile_row);
        g = take_bf16(take, strip_rows * score.tile_row);
        p_pairs = take_bf16(take, query_tile * score.tile_row);
        g_pairs = take_bf16(take, query_tile * score.tile_row);
        key_sums = take(relative * s.key_rows());
        distance_sums = take(relative * s.distance_rows());
        r = take_bf16(take, relative * s.distance_rows() * W);
        skewed = take_bf16(take, relative * strip_rows * skewed_row);
        skewed_pairs = take_bf16(take, relative * query_tile * skewed_row);
        dr = take(relative * s.distance_rows() * W);
    }
};

void pack(const Head<bf16>& head, const HeadShape& s, const HeadGradients<bf16>& grad, const BackwardScratch& f) {
    const int64_t W = f.score.W;
    const Rows<bf16> r = s.relative() ? reversed_distances(head, s) : Rows<bf16>{};
    pack(head, s, r, f.score);
    pack_left(grad.dout, s.query_rows(), f.dout, W);
    pack_transposed_right(head.v, s.key_rows(), f.v_transposed, W);
    pack_right(head.k, s.key_rows(), f.k, s.key_rows() * tile, W);
    pack_transposed_left(head.q, s.query_rows(), f.q_transposed, W);
    pack_transposed_left(grad.dout, s.query_rows(), f.dout_transposed, W);
    for (int64_t i = 0; i < s.queries; i++) {
        f32x16 dot{};
        for (int64_t c = 0; c < s.size; c += simd::width) dot += load(f.dout + i * W + c) * grad.out.piece(i, c);
        f.row_dot[i] = simd::sum(dot);
    }
    std::fill_n(f.dq, s.query_rows() * W, 0.0f);
    std::fill_n(f.dk, s.key_rows() * W, 0.0f);
    std::fill_n(f.dv, s.key_rows() * W, 0.0f);
    if (!s.relative()) return;
    pack_right(r, s.distance_rows(), f.r, s.distance_rows() * tile, W);
    std::fill_n(f.dr, s.distance_rows() * W, 0.0f);
    std::fill_n(f.key_sums, s.key_rows(), 0.0f);
    std::fill_n(f.distance_sums, s.distance_rows(), 0.0f);
}

/// Query rows i … i + rows − 1 against keys j … j + keys − 1; i and j are multiples of 32, i >= j.
struct Tile {
    int64_t i, rows, j, keys;

    int64_t padded_rows() const { return round_up(rows, strip_rows); }
    StripTile strip_at(int64_t a) const { return {i + a, j, keys}; }
    /// Columns of the un-skewed tile: key b of row a is at b − a + (padded rows − 1), distance 0 in the last column of all.
    int64_t distances() const { return std::min(padded_rows() - 1 + keys, padded_rows() + i - j); }
    int64_t first_distance(const HeadShape& s) const { return s.last_distance() - (i - j + padded_rows() - 1); }
};

/// Rows 0 … 31 of m as rows a … a + 31 of a right operand with panels of query_tile · 16.
void interleave(const bf16* m, int64_t m_row, int64_t columns, bf16* to) {
    for (int64_t x = 0; x < strip_rows; x += 2)
        for (int64_t n = 0; n < columns; n += tile) {
            simd::u16x16 even, odd;
            std::memcpy(&even, m + x * m_row + n, sizeof even);
            std::memcpy(&odd, m + (x + 1) * m_row + n, sizeof odd);
            store_pairs(to + n * query_tile + x * tile, even, odd);
        }
}

/// P and G of one row of a strip with zeros up to `keys`; rows that are no queries are zeros altogether.
template <AttentionPosition kind>
void gradient_row(const HeadShape& s, const BackwardScratch& f, float slope, const float* lse, const StripTile& t, int64_t i, int64_t x,
                  int64_t keys) {
    const ScoreScratch& o = f.score;
    bf16 *p = f.p + x * o.tile_row, *g = f.g + x * o.tile_row;
    const int64_t visible = i + x < s.queries ? t.visible(x) : 0;
    if (visible > 0) {
        const auto score = score_row<kind>(s, o.c, o.e, slope, t, x, o.scores + x * o.tile_row, o.band + x * o.band_row);
        attention::gradient_row(score, visible, lse[i + x], f.row_dot[i + x], f.dp + x * o.tile_row, p, g);
    }
    clear(p, round_up(visible, simd::width), round_up(keys, terms));
    clear(g, round_up(visible, simd::width), round_up(keys, terms));
}

/// A row of the strip's G un-skewed: its first key at column `first`, zeros in all other columns of the tile. Each part is written by
/// whole vectors and the next one covers where it went too far.
void skew_row(const bf16* g, int64_t visible, bf16* skewed, int64_t first, int64_t columns) {
    const auto copy = [](const bf16* from, bf16* to) { std::memcpy(to, from, tile * sizeof(bf16)); };
    constexpr bf16 zeros[tile] = {};
    for (int64_t n = 0; n < first; n += tile) copy(zeros, skewed + n);
    for (int64_t b = 0; b < visible; b += tile) copy(g + b, skewed + first + b);
    for (int64_t n = first + round_up(visible, tile); n < round_up(columns, terms); n += tile) copy(zeros, skewed + n);
}

/// P, G (and Gs) of rows a … a + 31 of the tile as right operands, and the rows' dQ.
template <AttentionPosition kind>
void backward_queries(const HeadShape& s, const BackwardScratch& f, float slope, const float* lse, const Tile& tile_, int64_t a) {
    const ScoreScratch& o = f.score;
    const int64_t W = o.W, i = tile_.i + a;
    const StripTile t = tile_.strip_at(a);
    const int64_t keys = visible_keys(t);
    multiply_scores(s, o, i, t);
    strip_product<false>({0, W}, {f.dout + i * W, W}, {f.v_transposed + t.j * W, W * tile}, {0, keys}, f.dp, o.tile_row);
    for (int64_t x = 0; x < strip_rows; x++) gradient_row<kind>(s, f, slope, lse, t, i, x, keys);
    interleave(f.p, o.tile_row, keys, f.p_pairs + a * tile);
    interleave(f.g, o.tile_row, keys, f.g_pairs + a * tile);
    strip_product<true>({0, keys}, {f.g, o.tile_row}, {f.k + t.j * tile, s.key_rows() * tile}, {0, W}, f.dq + i * W, W);
    if constexpr (kind == AttentionPosition::relative) {
        const int64_t columns = tile_.distances(), first = tile_.first_distance(s);
        for (int64_t x = 0; x < strip_rows; x++)
            skew_row(f.g + x * o.tile_row, i + x < s.queries ? t.visible(x) : 0, f.skewed + x * f.skewed_row,
                     tile_.padded_rows() - 1 - a - x, columns);
        interleave(f.skewed, f.skewed_row, columns, f.skewed_pairs + a * tile);
        const Range used{tile_.padded_rows() - strip_rows - a, std::min(columns, tile_.padded_rows() - 1 - a + tile_.keys)};
        strip_product<true>(used, {f.skewed, f.skewed_row}, {f.r + first * tile, s.distance_rows() * tile}, {0, W}, f.dq + i * W, W);
        for (int64_t b = 0; b < keys; b += tile) add_column_sums(f.g + b, o.tile_row, {0, strip_rows}, f.key_sums + t.j + b);
        for (int64_t d = 0; d < columns; d += tile)
            add_column_sums(f.skewed + d, f.skewed_row, {0, strip_rows}, f.distance_sums + first + d);
    }
}

/// dVᵀ, dKᵀ (and drᵀ) of one tile whose P, G (and Gs) are there.
void backward_keys(const HeadShape& s, const BackwardScratch& f, const Tile& tile_) {
    const int64_t T = s.query_rows(), K = s.key_rows(), rows = tile_.padded_rows(), panel = query_tile * tile;
    for (int64_t c = 0; c < f.score.W; c += strip_rows) {
        const Left dout{f.dout_transposed + c * T + tile_.i, T}, q{f.q_transposed + c * T + tile_.i, T};
        // Keys that only later strips see have no P and G of the earlier ones.
        for (int64_t a = 0, done = 0; a < rows; a += strip_rows) {
            const int64_t keys = visible_keys(tile_.strip_at(a));
            strip_product<true>({a, rows}, dout, {f.p_pairs, panel}, {done, keys}, f.dv + c * K + tile_.j, K);
            strip_product<true>({a, rows}, q, {f.g_pairs, panel}, {done, keys}, f.dk + c * K + tile_.j, K);
            done = round_up(keys, tile);
        }
        if (s.relative())
            strip_product<true>({0, rows}, q, {f.skewed_pairs, panel}, {0, tile_.distances()},
                                f.dr + c * s.distance_rows() + tile_.first_distance(s), s.distance_rows());
    }
}

template <AttentionPosition kind>
void backward_tiles(const HeadShape& s, const BackwardScratch& f, float slope, const float* lse) {
    for (int64_t j = 0; j < s.keys(); j += key_tile)
        for (int64_t i = j; i < s.queries; i += query_tile) {
            const Tile t{i, std::min(query_tile, s.queries - i), j, std::min(key_tile, s.keys() - j)};
            for (int64_t a = 0; a < t.rows; a += strip_rows) backward_queries<kind>(s, f, slope, lse, t, a);
            backward_keys(s, f, t);
        }
}

/// row k of m (columns, count) += vector[k] · weights.
void add_outer_product(const float* vector, const float* weights, int64_t columns, int64_t count, float* m) {
    for (int64_t k = 0; k < columns; k++)
        for (int64_t n = 0; n < count; n += simd::width) store(m + k * count + n, load(m + k * count + n) + vector[k] * load(weights + n));
}

/// Columns `which` of m (…, m_row) as the rows of a tensor: column n to to + (n − which.begin) · to_row, `columns` elements.
template <class T>
void store_columns(const float* m, int64_t m_row, Range which, int64_t columns, T* to, int64_t to_row) {
    for (int64_t n = round_down(which.begin, 16); n < which.end; n += 16)
        simd::for_vectors(columns, [&](int64_t c, auto lanes) {
            f32x16 block[16];
            for (int r = 0; r < 16; r++) block[r] = load(m + (c + r) * m_row + n);
            transpose(block);
            for (int64_t r = std::max(int64_t{0}, which.begin - n); r < std::min(int64_t{16}, which.end - n); r++)
                store(to + (n + r - which.begin) * to_row + c, block[r], lanes);
        });
}

void finish_relative(const HeadShape& s, const BackwardScratch& f, const HeadGradients<bf16>& grad) {
    const int64_t W = f.score.W, D = s.size, last = s.last_distance();
    add_outer_product(f.score.u, f.key_sums, D, s.key_rows(), f.dk);
    add_outer_product(f.score.v_bias, f.distance_sums, D, s.distance_rows(), f.dr);
    weighted_row_sums(f.key_sums, f.score.k_transposed, W, s.key_rows(), D, grad.du);
    weighted_row_sums(f.distance_sums, f.score.r_transposed, W, s.distance_rows(), D, grad.dv_bias);
    store_columns(f.dr, s.distance_rows(), {last - (s.keys() - 1), last + 1}, D, grad.dr + (s.keys() - 1) * D, -D);
}

bool request_tiles() {
    constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace

bool available() {
    static const bool granted = request_tiles();
    return granted;
}

size_t forward_scratch_bytes(const HeadShape& shape) {
    Carver count;
    ForwardScratch(padded(shape), count);
    return count.used;
}

void forward_head(const Head<bf16>& head, void* scratch, const HeadOutput<bf16>& to) {
    const Configuration tiles;
    const HeadShape s = padded(head.shape);
    Carver take{static_cast<char*>(scratch)};
    const ForwardScratch f(s, take);
    pack(head, s, s.relative() ? reversed_distances(head, s) : Rows<bf16>{}, f.score);
    pack_right(head.v, s.key_rows(), f.v, s.key_rows() * tile, f.score.W);
    std::fill_n(f.maximum, s.query_rows(), -INFINITY);
    std::fill_n(f.sum, s.query_rows(), 0.0f);
    by_position(s.position, [&](auto kind) { forward_tiles<kind()>(s, f, head.slope); });
    store_output(s, f.out, f.score.W, f.maximum, f.sum, to);
}

size_t backward_scratch_bytes(const HeadShape& shape) {
    Carver count;
    BackwardScratch(padded(shape), count);
    return count.used;
}

void backward_head(const Head<bf16>& head, void* scratch, const HeadGradients<bf16>& grad) {
    const Configuration tiles;
    const HeadShape s = padded(head.shape);
    Carver take{static_cast<char*>(scratch)};
    const BackwardScratch f(s, take);
    pack(head, s, grad, f);
    by_position(s.position, [&](auto kind) { backward_tiles<kind()>(s, f, head.slope, grad.lse); });
    if (s.relative()) finish_relative(s, f, grad);
    store_rows(f.dq, f.score.W, s.queries, s.size, 1.0f, grad.dq, grad.stride);
    store_columns(f.dk, s.key_rows(), {0, s.keys()}, s.size, grad.dk, grad.stride);
    store_columns(f.dv, s.key_rows(), {0, s.keys()}, s.size, grad.dv, grad.stride);
}

}  // namespace clover::attention::amx

#else

namespace clover::attention::amx {

bool available() { return false; }
size_t forward_scratch_bytes(const HeadShape&) { return 0; }
void forward_head(const Head<bf16>&, void*, const HeadOutput<bf16>&) { CLOVER_CHECK(false, "built without AMX"); }
size_t backward_scratch_bytes(const HeadShape&) { return 0; }
void backward_head(const Head<bf16>&, void*, const HeadGradients<bf16>&) { CLOVER_CHECK(false, "built without AMX"); }

}  // namespace clover::attention::amx

#endif
