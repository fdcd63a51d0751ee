// Attention over a cache: new keys and values are appended, then a prompt goes through the tiles of the forward and single tokens
// through two passes over the cache (scores, then the weighted sum of values), which read every key and value once.
#include "attention_decode.h"

#include "attention_amx.h"
#include "attention_checks.h"

namespace clover::attention {
namespace {

// From this many new tokens on, packing the cache for the tiles pays.
constexpr int64_t prompt = 4;

void check_past(const AttentionDecode& a, const DecodeSizes& n) {
    const int32_t* past = a.past.as<int32_t>();
    for (int64_t b = 0; b < n.B; b++) {
        CLOVER_CHECK(past[b] >= 0 && past[b] + n.Q <= n.capacity, "sequence ", b, ": ", past[b], " cached and ", n.Q,
                     " new tokens, capacity ", n.capacity);
        if (a.position.kind == AttentionPosition::relative)
            CLOVER_CHECK(past[b] + n.Q <= a.position.r.shape[0], a.position.r.describe(), " for distances below ", past[b] + n.Q);
    }
}

/// What single tokens need: the query with u and with v (relative), the scores of one query, the output.
struct TokenScratch {
    float *u, *v_bias;              // (width)
    float *content_q, *position_q;  // (width): (q + u) / √D and (q + v) / √D
    float *p, *out;                 // (capacity), (width)
    TokenScratch(int64_t width, int64_t capacity, Carver& take)
        : u(take(width)), v_bias(take(width)), content_q(take(width)), position_q(take(width)), p(take(round_up(capacity, simd::width))),
          out(take(width)) {}
};

size_t scratch_bytes(Path path, const AttentionDecode& a, const DecodeSizes& n) {
    if (n.Q >= prompt) return forward_scratch_bytes(path, {n.Q, n.capacity - n.Q, n.D, a.position.kind});
    Carver count;
    TokenScratch(round_up(n.D, simd::width), n.capacity, count);
    return count.used;
}

/// Σ_c query[c] row[c].
template <class T>
CLOVER_INLINE float dot(const float* query, const T* row, int64_t D) {
    f32x16 total{};
    simd::for_vectors(D, [&](int64_t c, auto lanes) { total += load(query + c) * simd::load(row + c, lanes); });
    return simd::sum(total);
}

template <class T>
void score_token(const Head<T>& head, const TokenScratch& f, int64_t i) {
    const int64_t D = head.shape.size, last = head.shape.past + i;
    for (int64_t j = 0; j <= last; j++) f.p[j] = dot(f.content_q, head.k.data + j * head.k.stride, D);
    if (head.shape.position == AttentionPosition::alibi)
        for (int64_t j = 0; j <= last; j++) f.p[j] += head.slope * float(j - last);
    if (head.shape.relative())
        for (int64_t j = 0; j <= last; j++) f.p[j] += dot(f.position_q, head.r.data + (last - j) * head.r.stride, D);
}

/// p to exp(p − max); the result is their sum.
float exponentiate(float* p, int64_t n) {
    f32x16 greatest = simd::splat(-INFINITY), total{};
    simd::for_vectors(n, [&](int64_t j, auto lanes) { greatest = simd::max(greatest, simd::keep(load(p + j), lanes, -INFINITY)); });
    const float m = simd::max(greatest);
    simd::for_vectors(n, [&](int64_t j, auto lanes) {
        const f32x16 e = simd::keep(exponential(load(p + j) - m), lanes);
        store(p + j, e);
        total += e;
    });
    return simd::sum(total);
}

template <class T>
void decode_token(const Head<T>& head, const TokenScratch& f, int64_t i, T* out) {
    const HeadShape& s = head.shape;
    const int64_t W = s.width(), n = s.past + i + 1;
    copy_rows(Rows<T>{head.q.data + i * head.q.stride, 0, 0, 1, s.size}, 1, s.scale(), f.content_q, W);
    if (s.relative())
        for (int64_t c = 0; c < W; c += simd::width) {
            const f32x16 q = load(f.content_q + c);
            store(f.content_q + c, q + load(f.u + c) * s.scale());
            store(f.position_q + c, q + load(f.v_bias + c) * s.scale());
        }
    score_token(head, f, i);
    const float sum = exponentiate(f.p, n);
    std::fill_n(f.out, W, 0.0f);
    for (int64_t j = 0; j < n; j++) {
        const T* v = head.v.data + j * head.v.stride;
        simd::for_vectors(s.size, [&](int64_t c, auto lanes) { store(f.out + c, load(f.out + c) + f.p[j] * simd::load(v + c, lanes)); });
    }
    store_rows(f.out, W, 1, s.size, 1 / sum, out, 0);
}

template <class T>
void decode_tokens(const Head<T>& head, void* scratch, int64_t capacity, T* out, int64_t out_stride) {
    Carver take{static_cast<char*>(scratch)};
    const TokenScratch f(head.shape.width(), capacity, take);
    if (head.shape.relative()) pack_biases(head, f.u, f.v_bias);
    for (int64_t i = 0; i < head.shape.queries; i++) decode_token(head, f, i, out + i * out_stride);
}

/// Copies the new keys and values of one head behind the cached ones and returns the head with the whole cache as its keys.
template <class T>
Head<T> append(const AttentionDecode& a, const DecodeSizes& n, int64_t b, int64_t h) {
    const int64_t past = static_cast<const int32_t*>(a.past.data)[b], C3 = n.H * 3 * n.D, cache = (b * n.H + h) * n.capacity * n.D;
    const T* qkv = static_cast<const T*>(a.qkv.data) + b * n.Q * C3 + h * 3 * n.D;
    T *keys = static_cast<T*>(a.keys.data) + cache, *values = static_cast<T*>(a.values.data) + cache;
    for (int64_t t = 0; t < n.Q; t++) {
        std::copy_n(qkv + t * C3 + n.D, n.D, keys + (past + t) * n.D);
        std::copy_n(qkv + t * C3 + 2 * n.D, n.D, values + (past + t) * n.D);
    }
    Head<T> head{};
    head.shape = {n.Q, past, n.D, a.position.kind};
    head.q = {qkv, C3, 0, n.Q, n.D};
    head.k = {keys, n.D, 0, past + n.Q, n.D};
    head.v = {values, n.D, 0, past + n.Q, n.D};
    set_position(head, a.position, h);
    return head;
}

}  // namespace

template <bool portable>
size_t decode_workspace_bytes(const AttentionDecode& a) {
    const DecodeSizes n = check(a);
    return size_t(head_threads(n.B * n.H)) * scratch_bytes(path_of(a.qkv.dtype, n.capacity, n.D, portable), a, n);
}
template size_t decode_workspace_bytes<false>(const AttentionDecode&);
template size_t decode_workspace_bytes<true>(const AttentionDecode&);

template <bool portable>
void decode(Context& ctx, const AttentionDecode& a) {
    const DecodeSizes n = check(a);
    if (n.B * n.Q == 0) return;
    check_past(a, n);
    const Path path = path_of(a.qkv.dtype, n.capacity, n.D, portable);
    by_dtype(a.qkv.dtype, [&](auto element) {
        using T = decltype(element);
        for_heads(ctx, n.B * n.H, scratch_bytes(path, a, n), n.Q * n.capacity * n.D, [&](int64_t unit, void* scratch) {
            const int64_t b = unit / n.H, h = unit % n.H;
            const Head<T> head = append<T>(a, n, b, h);
            T* out = static_cast<T*>(a.out.data) + b * n.Q * n.H * n.D + h * n.D;
            if (n.Q >= prompt)
                forward_head(path, head, scratch, HeadOutput<T>{out, n.H * n.D, nullptr});
            else
                decode_tokens(head, scratch, n.capacity, out, n.H * n.D);
        });
    });
}
template void decode<false>(Context&, const AttentionDecode&);
template void decode<true>(Context&, const AttentionDecode&);

}  // namespace clover::attention
