// bfloat16: the upper 16 bits of an IEEE 754 binary32 (1 sign, 8 exponent, 7 fraction bits).
// Conversion to bf16 rounds to nearest, ties to even; NaN stays NaN.
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

/// x stored as T (float or bf16).
template <class T>
CLOVER_HD T from_float(float x);
template <>
CLOVER_HD inline float from_float<float>(float x) { return x; }
template <>
CLOVER_HD inline bf16 from_float<bf16>(float x) { return to_bf16(x); }

}  // namespace clover
