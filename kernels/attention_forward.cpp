// The forward of one head: tiles of keys outside, strips of queries inside, so that a tile's K and V stay in the cache while all
// queries pass. Online softmax (Milakov and Gimelshein 2018): with a new tile, what was summed so far is scaled by exp(m_old − m_new).
#include "attention_head.h"

namespace clover::attention {
namespace {

constexpr int64_t key_tile = 512;

struct ForwardScratch {
    ScoreOperands score;
    int64_t score_row, band_row;
    float* v;              // (key rows, width)
    float* out;            // (query rows, width): Σ_j exp(S_ij − m_i) v_j
    float *maximum, *sum;  // (query rows): m_i and Σ_j exp(S_ij − m_i)
    float *scores, *band;  // (8, score_row), (8, band_row)

    ForwardScratch(const HeadShape& s, Carver& take)
        : score(s, take),
          score_row(round_up(std::min(s.keys(), key_tile), simd::width) + simd::width),
          band_row(band_columns(std::min(s.keys(), key_tile))),
          v(take(s.key_rows() * s.width())),
          out(take(s.query_rows() * s.width())),
          maximum(take(s.query_rows())),
          sum(take(s.query_rows())),
          scores(take(strip * score_row)),
          band(take(s.relative() ? strip * band_row : 0)) {}
};

template <AttentionPosition kind>
void forward_strip(const HeadShape& s, const ForwardScratch& f, float slope, int64_t i, const StripTile& t) {
    const int64_t W = s.width();
    multiply_scores(s, f.score, i, t, f.scores, f.score_row, f.band, f.band_row);
    for (int64_t x = 0; x < std::min(strip, s.queries - i); x++) {
        const int64_t visible = t.visible(x);
        float* p = f.scores + x * f.score_row;
        const auto score = score_row<kind>(s, f.score.c, f.score.e, slope, t, x, p, f.band + x * f.band_row);
        const float older = softmax_row(score, visible, p, p, f.maximum[i + x], f.sum[i + x]);
        // The strip's last row may see up to seven keys more.
        for (int64_t b = round_up(visible, simd::width); b < t.visible(); b += simd::width) store(p + b, f32x16{});
        if (t.j > 0 && older != 1) scale_row(f.out + (i + x) * W, W, older);
    }
    const Left p{f.scores, f.score_row, 1};
    const Right v{f.v + t.j * W, W, panel_columns};
    if (t.j == 0)
        strip_product<false>({0, t.visible()}, p, v, {0, W}, f.out + i * W, W);
    else
        strip_product<true>({0, t.visible()}, p, v, {0, W}, f.out + i * W, W);
}

template <AttentionPosition kind>
void forward_tiles(const HeadShape& s, const ForwardScratch& f, float slope) {
    for (int64_t j = 0; j < s.keys(); j += key_tile)
        for (int64_t i = round_down(std::max(int64_t{0}, j - s.past), strip); i < s.queries; i += strip)
            forward_strip<kind>(s, f, slope, i, {s.past + i, j, std::min(key_tile, s.keys() - j)});
}

}  // namespace

size_t forward_scratch_bytes(const HeadShape& shape) {
    Carver count;
    ForwardScratch(shape, count);
    return count.used;
}

template <class T>
void forward_head(const Head<T>& head, void* scratch, const HeadOutput<T>& to) {
    const HeadShape& s = head.shape;
    Carver take{static_cast<char*>(scratch)};
    const ForwardScratch f(s, take);
    pack(head, f.score);
    copy_rows(head.v, s.key_rows(), 1.0f, f.v, s.width());
    std::fill_n(f.maximum, s.query_rows(), -INFINITY);
    std::fill_n(f.sum, s.query_rows(), 0.0f);
    by_position(s.position, [&](auto kind) { forward_tiles<kind()>(s, f, head.slope); });
    store_output(s, f.out, s.width(), f.maximum, f.sum, to);
}
template void forward_head(const Head<float>&, void*, const HeadOutput<float>&);
template void forward_head(const Head<bf16>&, void*, const HeadOutput<bf16>&);
template void forward_head(const Head<f16>&, void*, const HeadOutput<f16>&);

}  // namespace clover::attention
