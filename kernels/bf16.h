// The two 16-bit floating-point numbers.
//   bf16  the upper 16 bits of an IEEE 754 binary32: 1 sign, 8 exponent, 7 fraction bits
//   f16   IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits; from 65520 on ∞, below 2^-14 subnormal, multiples of 2^-24
// Conversion from float rounds to nearest, ties to even; NaN stays NaN, of the same sign and upper fraction bits, and turns quiet.
#pragma once
#include <bit>
#include <cstdint>

/// Before a function that CUDA kernels call too.
#ifdef __CUDACC__
#define CLOVER_HD __host__ __device__
#else
#define CLOVER_HD
#endif

namespace clover {

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

CLOVER_HD inline float to_float(float x) { return x; }
CLOVER_HD inline float to_float(bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

CLOVER_HD inline bf16 to_bf16(float x) {
#ifdef __CUDA_ARCH__
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {uint16_t((u >> 16) | 0x40u)};
    return {uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
#endif
}

/// The neighbour of x in bf16 below or above, at random: `noise` is drawn from 0 … 65535 (kernels/optimizer.h).
CLOVER_HD inline bf16 to_bf16_stochastic(float x, uint32_t noise) {
    constexpr uint32_t exponent = 0x7f800000u;
    const uint32_t u = std::bit_cast<uint32_t>(x), sum = u + noise;
    if ((u & exponent) == exponent) return to_bf16(x);
    return {uint16_t(((sum & exponent) == exponent ? u : sum) >> 16)};
}

CLOVER_HD inline float to_float(f16 x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else
    const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16, magnitude = uint32_t{x.bits & 0x7fffu} << 13;
    constexpr uint32_t bias = 112u << 23, least_normal = 1u << 23, infinity = 31u << 23;
    if (magnitude < least_normal) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + bias + least_normal) - 0x1p-14f));
    if (magnitude < infinity) return std::bit_cast<float>(sign | (magnitude + bias));
    return std::bit_cast<float>(sign | (magnitude + 2 * bias) | (magnitude > infinity ? 1u << 22 : 0u));
#endif
}

CLOVER_HD inline f16 to_f16(float x) {
#ifdef __CUDA_ARCH__
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    const uint32_t u = std::bit_cast<uint32_t>(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    constexpr uint32_t bias = 112u << 23, least_normal = 113u << 23, to_infinity = 0x477ff000u, infinity = 0x7f800000u;
    if (magnitude > infinity) return {uint16_t(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu))};
    if (magnitude >= to_infinity) return {uint16_t(sign | 0x7c00u)};
    // 2^-24 is the last place of 0.5: the addition rounds.
    if (magnitude < least_normal) return {uint16_t(sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u))};
    return {uint16_t(sign | ((magnitude - bias + 0xfffu + (magnitude >> 13 & 1u)) >> 13))};
#endif
}

/// x stored as T: float, bf16 or f16.
template <class T>
CLOVER_HD T from_float(float x);
template <>
CLOVER_HD inline float from_float<float>(float x) { return x; }
template <>
CLOVER_HD inline bf16 from_float<bf16>(float x) { return to_bf16(x); }
template <>
CLOVER_HD inline f16 from_float<f16>(float x) { return to_f16(x); }

}  // namespace clover
