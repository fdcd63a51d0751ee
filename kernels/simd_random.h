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

/// RoundingKey::noise of the elements [element, element + 64), `element` a multiple of 8: eight draws, whose words lie in memory as their elements do.
CLOVER_INLINE void rounding_noise(const RoundingKey& r, uint64_t element, u32x16 (&noise)[4]) {
    const u64x8 draw = u64x8{0, 1, 2, 3, 4, 5, 6, 7} + element / 8, where = u64x8{} + uint64_t{stream_word(Stream::rounding, r.key)};
    const std::array<u64x8, 4> words = philox({draw, draw >> 32, where, u64x8{} + uint64_t{r.step}}, {uint32_t(r.seed), uint32_t(r.seed >> 32)});
    const u64x8 lower = (words[0] & 0xffffffffu) | (words[1] << 32), upper = (words[2] & 0xffffffffu) | (words[3] << 32);
    const u64x8 draws[2] = {__builtin_shufflevector(lower, upper, 0, 8, 1, 9, 2, 10, 3, 11), __builtin_shufflevector(lower, upper, 4, 12, 5, 13, 6, 14, 7, 15)};
    for (int k = 0; k < 4; k++) {
        u16x16 part;
        std::memcpy(&part, reinterpret_cast<const char*>(draws) + k * sizeof part, sizeof part);
        noise[k] = __builtin_convertvector(part, u32x16);
    }
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
