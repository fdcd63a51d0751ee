// Sixteen floats at a time: loads and stores of float, bf16 and f16, exp, tanh, reductions of fixed order.
// By the vector extensions of GCC and Clang, which split the vectors where the machine's are narrower; intrinsics stand only where
// those generate poor code, and give the same bits. Stores of bf16 and f16 round as to_bf16 and to_f16 do.
//
// A loop over n elements, whose body is written once for whole vectors and for the rest at the end:
//   for_vectors(n, [&](int64_t i, auto lanes) { store(y + i, exp(load(x + i, lanes)), lanes); });
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "bf16.h"

// Vectors wider than the machine's travel in memory between functions that are not inlined; all of these are inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace clover::simd {

#define CLOVER_INLINE inline __attribute__((always_inline))

constexpr int64_t width = 16;
using f32x16 = float __attribute__((vector_size(64)));
using i32x16 = int32_t __attribute__((vector_size(64)));
using u32x16 = uint32_t __attribute__((vector_size(64)));
using u16x16 = uint16_t __attribute__((vector_size(32)));

/// The number of lanes in use: all of them as a type, or 0 … 16 as a number.
using AllLanes = std::integral_constant<int64_t, width>;

CLOVER_INLINE f32x16 splat(float x) { return x - f32x16{}; }

/// mask lanes are all ones or all zeros, as comparisons give them.
CLOVER_INLINE f32x16 select(i32x16 mask, f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
    return mask ? a : b;
#else
    return (f32x16)((mask & (i32x16)a) | (~mask & (i32x16)b));
#endif
}
/// Where a lane of one operand is NaN the result is b.
CLOVER_INLINE f32x16 max(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_maskz_max_ps(0xffff, (__m512)a, (__m512)b);
#else
    return select(a > b, a, b);
#endif
}
CLOVER_INLINE f32x16 min(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_maskz_min_ps(0xffff, (__m512)a, (__m512)b);
#else
    return select(a < b, a, b);
#endif
}
/// Whether a lane of a is greater than that of b.
CLOVER_INLINE bool any_greater(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ) != 0;
#else
    const i32x16 greater = a > b;
    int32_t any = 0;
    for (int i = 0; i < width; i++) any |= greater[i];
    return any != 0;
#endif
}
CLOVER_INLINE f32x16 abs(f32x16 a) { return (f32x16)((i32x16)a & 0x7fffffff); }

CLOVER_INLINE f32x16 sqrt(f32x16 a) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_maskz_sqrt_ps(0xffff, (__m512)a);
#else
    f32x16 r;
#if defined(__AVX__)
    float part[width];
    std::memcpy(part, &a, sizeof a);
    _mm256_storeu_ps(part, _mm256_sqrt_ps(_mm256_loadu_ps(part)));
    _mm256_storeu_ps(part + 8, _mm256_sqrt_ps(_mm256_loadu_ps(part + 8)));
    std::memcpy(&r, part, sizeof r);
#else
    for (int i = 0; i < width; i++) r[i] = __builtin_sqrtf(a[i]);
#endif
    return r;
#endif
}

// ---- loads and stores; the pointers need no alignment beyond their element's ----

CLOVER_INLINE f32x16 widen(u16x16 bits) {
#if defined(__AVX512F__)
    return (f32x16)((u32x16)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)bits) << 16);
#else
    return (f32x16)(__builtin_convertvector(bits, u32x16) << 16);
#endif
}
CLOVER_INLINE u16x16 narrow(f32x16 x) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
    constexpr int denormal = 0x20;  // which the instruction would take for 0
    if (_mm512_fpclass_ps_mask((__m512)x, denormal) == 0) return (u16x16)_mm512_cvtneps_pbh((__m512)x);
#endif
    const u32x16 u = (u32x16)x, upper = u >> 16;
    const u32x16 nearest = (u + 0x7fffu + (upper & 1u)) >> 16;
    const u32x16 bits = (u32x16)select(x != x, (f32x16)(upper | 0x40u), (f32x16)nearest);
#if defined(__AVX512F__)
    return (u16x16)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)bits);
#else
    return __builtin_convertvector(bits, u16x16);
#endif
}

CLOVER_INLINE f32x16 widen_f16(u16x16 bits) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_maskz_cvtph_ps(0xffff, (__m256i)bits);
#elif defined(__F16C__)
    __m128i half[2];
    f32x16 x;
    std::memcpy(half, &bits, sizeof bits);
    const __m256 part[2] = {_mm256_cvtph_ps(half[0]), _mm256_cvtph_ps(half[1])};
    std::memcpy(&x, part, sizeof x);
    return x;
#else
    const u32x16 h = __builtin_convertvector(bits, u32x16), sign = (h & 0x8000u) << 16, magnitude = (h & 0x7fffu) << 13;
    constexpr int32_t bias = 112 << 23, least_normal = 1 << 23, infinity = 31 << 23;
    const i32x16 m = (i32x16)magnitude, quiet = (m > infinity) & (1 << 22);
    const f32x16 finite = select(m < least_normal, (f32x16)(m + bias + least_normal) - 0x1p-14f, (f32x16)(m + bias));
    return (f32x16)((u32x16)select(m < infinity, finite, (f32x16)((m + 2 * bias) | quiet)) | sign);
#endif
}
CLOVER_INLINE u16x16 narrow_f16(f32x16 x) {
#if defined(__AVX512F__)
    return (u16x16)_mm512_maskz_cvtps_ph(0xffff, (__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__F16C__)
    __m256 part[2];
    u16x16 bits;
    std::memcpy(part, &x, sizeof x);
    const __m128i half[2] = {_mm256_cvtps_ph(part[0], _MM_FROUND_TO_NEAREST_INT), _mm256_cvtps_ph(part[1], _MM_FROUND_TO_NEAREST_INT)};
    std::memcpy(&bits, half, sizeof bits);
    return bits;
#else
    const u32x16 u = (u32x16)x, sign = u >> 16 & 0x8000u;
    const i32x16 m = (i32x16)(u & 0x7fffffffu);
    constexpr int32_t bias = 112 << 23, least_normal = 113 << 23, to_infinity = 0x477ff000, infinity = 0x7f800000;
    const f32x16 normal = (f32x16)((m - bias + 0xfff + (m >> 13 & 1)) >> 13), subnormal = (f32x16)((i32x16)((f32x16)m + 0.5f) - 0x3f000000);
    const f32x16 finite = select(m < least_normal, subnormal, normal);
    const f32x16 beyond = select(m > infinity, (f32x16)((m >> 13 & 0x3ff) | 0x7e00), (f32x16)(i32x16{} + 0x7c00));
    return __builtin_convertvector((u32x16)select(m < to_infinity, finite, beyond) | sign, u16x16);
#endif
}

CLOVER_INLINE f32x16 load(const float* p, AllLanes = {}) {
    f32x16 v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
CLOVER_INLINE f32x16 load(const bf16* p, AllLanes = {}) {
    u16x16 v;
    std::memcpy(&v, p, sizeof v);
    return widen(v);
}
CLOVER_INLINE f32x16 load(const f16* p, AllLanes = {}) {
    u16x16 v;
    std::memcpy(&v, p, sizeof v);
    return widen_f16(v);
}
CLOVER_INLINE void store(float* p, f32x16 v, AllLanes = {}) { std::memcpy(p, &v, sizeof v); }
CLOVER_INLINE void store(bf16* p, f32x16 v, AllLanes = {}) {
    const u16x16 bits = narrow(v);
    std::memcpy(p, &bits, sizeof bits);
}
CLOVER_INLINE void store(f16* p, f32x16 v, AllLanes = {}) {
    const u16x16 bits = narrow_f16(v);
    std::memcpy(p, &bits, sizeof bits);
}

/// The first n lanes from memory, the others 0; and to memory, where what follows them is not touched.
#if defined(__AVX512BW__) && defined(__AVX512VL__)
CLOVER_INLINE uint16_t first_lanes(int64_t n) { return uint16_t((1u << n) - 1); }
CLOVER_INLINE f32x16 load(const float* p, int64_t n) { return (f32x16)_mm512_maskz_loadu_ps(first_lanes(n), p); }
CLOVER_INLINE f32x16 load(const bf16* p, int64_t n) { return widen((u16x16)_mm256_maskz_loadu_epi16(first_lanes(n), p)); }
CLOVER_INLINE f32x16 load(const f16* p, int64_t n) { return widen_f16((u16x16)_mm256_maskz_loadu_epi16(first_lanes(n), p)); }
CLOVER_INLINE void store(float* p, f32x16 v, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), (__m512)v); }
CLOVER_INLINE void store(bf16* p, f32x16 v, int64_t n) { _mm256_mask_storeu_epi16(p, first_lanes(n), (__m256i)narrow(v)); }
CLOVER_INLINE void store(f16* p, f32x16 v, int64_t n) { _mm256_mask_storeu_epi16(p, first_lanes(n), (__m256i)narrow_f16(v)); }
#else
template <class T>
CLOVER_INLINE f32x16 load(const T* p, int64_t n) {
    T part[width] = {};
    for (int64_t i = 0; i < n; i++) part[i] = p[i];
    return load(part);
}
template <class T>
CLOVER_INLINE void store(T* p, f32x16 v, int64_t n) {
    T part[width];
    store(part, v);
    for (int64_t i = 0; i < n; i++) p[i] = part[i];
}
#endif

/// The first n lanes of v, `rest` in the others.
CLOVER_INLINE f32x16 keep(f32x16 v, AllLanes, float = 0) { return v; }
CLOVER_INLINE f32x16 keep(f32x16 v, int64_t n, float rest = 0) {
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return select(lane < int32_t(n), v, splat(rest));
}

/// Calls body(i, lanes) for i = 0, 16, … below n, with AllLanes or, at the end, the number that remains.
template <class Body>
CLOVER_INLINE void for_vectors(int64_t n, Body&& body) {
    int64_t i = 0;
    for (; i + width <= n; i += width) body(i, AllLanes{});
    if (i < n) body(i, n - i);
}

// ---- reductions over the lanes: halves onto halves ----

/// combine(lower half, upper half), four times.
template <class Combine>
CLOVER_INLINE float across(f32x16 v, Combine combine) {
    const auto a = combine(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
    const auto b = combine(__builtin_shufflevector(a, a, 0, 1, 2, 3), __builtin_shufflevector(a, a, 4, 5, 6, 7));
    const auto c = combine(b, __builtin_shufflevector(b, b, 2, 3, 2, 3));
    return combine(c, __builtin_shufflevector(c, c, 1, 1, 1, 1))[0];
}
CLOVER_INLINE float sum(f32x16 v) {
    return across(v, [](auto a, auto b) { return a + b; });
}
/// The greatest lane; NaN lanes may be passed over.
CLOVER_INLINE float max(f32x16 v) {
    return across(v, [](auto a, auto b) { return a > b ? a : b; });
}

/// Σ_i of each of the K vectors that term(i, lanes) returns as std::array, over n elements. The order depends on n alone: four running
/// sums of vectors, so that an addition need not wait for the one before it.
template <size_t K, class Term>
CLOVER_INLINE std::array<float, K> sums_over(int64_t n, Term&& term) {
    f32x16 running[4][K] = {};
    int64_t i = 0;
    for (; i + 4 * width <= n; i += 4 * width)
        for (int j = 0; j < 4; j++) {
            const std::array<f32x16, K> terms = term(i + j * width, AllLanes{});
            for (size_t k = 0; k < K; k++) running[j][k] += terms[k];
        }
    for_vectors(n - i, [&](int64_t rest, auto lanes) {
        const std::array<f32x16, K> terms = term(i + rest, lanes);
        for (size_t k = 0; k < K; k++) running[0][k] += keep(terms[k], lanes);
    });
    std::array<float, K> sums;
    for (size_t k = 0; k < K; k++) sums[k] = sum((running[0][k] + running[1][k]) + (running[2][k] + running[3][k]));
    return sums;
}
template <class Term>
CLOVER_INLINE float sum_over(int64_t n, Term&& term) {
    return sums_over<1>(n, [&](int64_t i, auto lanes) { return std::array<f32x16, 1>{term(i, lanes)}; })[0];
}

// ---- functions ----

/// v · 2^n for whole n in [-252, 254], rounded once.
CLOVER_INLINE f32x16 scale_by_power_of_two(f32x16 v, f32x16 n) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_maskz_scalef_ps(0xffff, (__m512)v, (__m512)n);
#else
    // In two factors, for 2^n alone may be no normal number.
    const i32x16 whole = __builtin_convertvector(n, i32x16), half = whole >> 1;
    const f32x16 first = (f32x16)((half + 127) << 23), second = (f32x16)((whole - half + 127) << 23);
    return v * first * second;
#endif
}

/// e^x, relative error below 1.0e-7 where the result is a normal number; 0 for -∞, ∞ from 88.73 on, NaN for NaN.
CLOVER_INLINE f32x16 exp(f32x16 x) {
    // e^x = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2; ln 2 in two parts, the first of ten bits so that n · high is exact.
    constexpr float log2_e = 1.44269504088896341f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    constexpr float round_to_whole = 0x1.8p23f;
    x = min(splat(89.0f), max(splat(-105.0f), x));
    const f32x16 n = (x * log2_e + round_to_whole) - round_to_whole;
    const f32x16 r = (x - n * ln2_high) - n * ln2_low;
    // The minimax polynomial of Cephes' expf.
    f32x16 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    return scale_by_power_of_two(p, n);
}

/// 1 / x for x in [1, 2^126], relative error below 1.2e-7: a division takes three times as long.
CLOVER_INLINE f32x16 reciprocal(f32x16 x) {
#if defined(__AVX512F__)
    const f32x16 y = (f32x16)_mm512_maskz_rcp14_ps(0xffff, (__m512)x);
    return y * (2.0f - x * y);  // one step of Newton's takes 14 bits to 28
#else
    return 1.0f / x;
#endif
}

/// tanh x, relative error below 2.0e-7; ±1 for ±∞, NaN for NaN.
CLOVER_INLINE f32x16 tanh(f32x16 x) {
    const f32x16 a = abs(x), z = x * x;
    // Near 0 the exponential's form cancels: there Cephes' odd polynomial.
    f32x16 p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z + -5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z + -3.33332819422e-1f;
    const f32x16 near = p * z * x + x;
    const f32x16 far = 1.0f - 2.0f / (exp(a + a) + 1.0f);
    const i32x16 sign = (i32x16)x & std::numeric_limits<int32_t>::min();
    return select(a < 0.625f, near, (f32x16)((i32x16)far | sign));
}

}  // namespace clover::simd
