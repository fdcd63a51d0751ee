// The numbers of random.h and the rounding of bf16.h, sixteen at a time: the same bits.
#pragma once
#include "random.h"
#include "simd.h"

namespace clover::simd {

/// Eight 32-bit numbers, each in the lower half of a lane; what the upper halves hold does not matter.
using u64x8 = uint64_t __attribute__((vector_size(64)));
/// The whole products with b.
CLOVER_INLINE u64x8 multiply(u64x8 a, uint32_t b) {
#if defined(__AVX512F__)
    return (u64x8)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)(u64x8{} + b));
#else
    return (a & 0xffffffffu) * b;
#endif
}

/// philox() of eight counters.
CLOVER_INLINE std::array<u64x8, 4> philox(std::array<u64x8, 4> counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; round++) {
        const u64x8 a = multiply(counter[0], 0xD2511F53u), b = multiply(counter[2], 0xCD9E8D57u);
        counter = {(b >> 32) ^ counter[1] ^ uint64_t{key[0]}, b, (a >> 32) ^ counter[3] ^ uint64_t{key[1]}, a};
        key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
    }
    return counter;
}

/// rows[j] = lanes 4 j … 4 j + 3 of the four columns, lane after lane.
CLOVER_INLINE void interleave(const std::array<u32x16, 4>& columns, u32x16 (&rows)[4]) {
    const auto lower = [](auto a, auto b) { return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23); };
    const auto upper = [](auto a, auto b) { return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31); };
    const u32x16 even_lower = lower(columns[0], columns[2]), even_upper = upper(columns[0], columns[2]);
    const u32x16 odd_lower = lower(columns[1], columns[3]), odd_upper = upper(columns[1], columns[3]);
    rows[0] = lower(even_lower, odd_lower);
    rows[1] = upper(even_lower, odd_lower);
    rows[2] = lower(even_upper, odd_upper);
    rows[3] = upper(even_upper, odd_upper);
}

/// RoundingKey::noise of the elements [element, element + 64), `element` a multiple of 4: sixteen draws, those of even place and those of odd.
CLOVER_INLINE void rounding_noise(const RoundingKey& r, uint64_t element, u32x16 (&noise)[4]) {
    constexpr u64x8 place = {0, 2, 4, 6, 8, 10, 12, 14};
    const uint64_t where = stream_word(Stream::rounding, r.key);
    std::array<u64x8, 4> words[2];
    for (uint64_t odd : {0, 1}) {
        const u64x8 draw = place + (element / 4 + odd);
        words[odd] = philox({draw, draw >> 32, u64x8{} + where, u64x8{} + uint64_t{r.step}}, {uint32_t(r.seed), uint32_t(r.seed >> 32)});
    }
    std::array<u32x16, 4> columns;
    for (size_t k = 0; k < 4; k++) columns[k] = (u32x16)((words[0][k] & 0xffffffffu) | (words[1][k] << 32));
    interleave(columns, noise);
    for (u32x16& n : noise) n >>= 16;
}

CLOVER_INLINE f32x16 round_nearest(f32x16 x) { return widen(narrow(x)); }

/// to_bf16_stochastic, as floats.
CLOVER_INLINE f32x16 round_stochastic(f32x16 x, u32x16 noise) {
    const i32x16 exponent = i32x16{} + 0x7f800000;
    const u32x16 u = (u32x16)x, sum = u + noise;
    const i32x16 overflows = ((i32x16)sum & exponent) == exponent, special = ((i32x16)u & exponent) == exponent;
    const f32x16 cut = (f32x16)((u32x16)select(overflows, x, (f32x16)sum) & 0xffff0000u);
    return select(special, round_nearest(x), cut);
}

}  // namespace clover::simd
