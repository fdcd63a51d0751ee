// The numbers of random.h and the rounding of bf16.h, sixteen at a time: the same bits.
#pragma once
#include "random.h"
#include "simd.h"

namespace clover::simd {

/// The low and the high half of the products of 32-bit numbers.
struct Products {
    u32x16 low, high;
};
CLOVER_INLINE Products multiply(u32x16 a, uint32_t b) {
#if defined(__AVX512F__)
    using u64x8 = uint64_t __attribute__((vector_size(64)));
    const u64x8 pairs = (u64x8)a, factor = u64x8{} + b;
    const u64x8 even = (u64x8)_mm512_maskz_mul_epu32(0xff, (__m512i)pairs, (__m512i)factor);
    const u64x8 odd = (u64x8)_mm512_maskz_mul_epu32(0xff, (__m512i)(pairs >> 32), (__m512i)factor);
    constexpr uint64_t lower = 0xffffffff;
    return {(u32x16)((even & lower) | (odd << 32)), (u32x16)((even >> 32) | (odd & ~lower))};
#else
    using u64x16 = uint64_t __attribute__((vector_size(128)));
    const u64x16 product = __builtin_convertvector(a, u64x16) * b;
    return {__builtin_convertvector(product, u32x16), __builtin_convertvector(product >> 32, u32x16)};
#endif
}

/// philox() of sixteen counters.
CLOVER_INLINE std::array<u32x16, 4> philox(std::array<u32x16, 4> counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; round++) {
        const Products a = multiply(counter[0], 0xD2511F53u), b = multiply(counter[2], 0xCD9E8D57u);
        counter = {b.high ^ counter[1] ^ key[0], b.low, a.high ^ counter[3] ^ key[1], a.low};
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

/// RoundingKey::noise of the elements [element, element + 64), `element` a multiple of 4.
CLOVER_INLINE void rounding_noise(const RoundingKey& r, uint64_t element, u32x16 (&noise)[4]) {
    constexpr u32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint64_t first = element / 4;
    const u32x16 low = lane + uint32_t(first), carry = (u32x16)(low < lane) & 1u;
    const u32x16 where = u32x16{} + stream_word(Stream::rounding, r.key);
    interleave(philox({low, carry + uint32_t(first >> 32), where, u32x16{} + r.step}, {uint32_t(r.seed), uint32_t(r.seed >> 32)}), noise);
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
