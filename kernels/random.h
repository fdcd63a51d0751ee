// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): a counter-based generator.
// Every random number of Clover is a pure function of (seed, stream, step, element): the same bits on every device, for any
// number of threads and any mesh, and a resumed run needs no generator state.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

#include "bf16.h"

namespace clover {

/// What a number is for; numbers of different streams are independent.
enum class Stream : uint32_t { initialisation = 1, rounding = 2, sampling = 3, data_order = 4, dropout = 5 };

CLOVER_HD inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; round++) {
        const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
        counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
        key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
    }
    return counter;
}

/// The word of the counter that stream and substream share.
CLOVER_HD inline uint32_t stream_word(Stream stream, uint32_t substream) { return substream * 8u + uint32_t(stream); }

/// Four 32-bit words for one element of one stream. `substream` tells tensors (or layers, or ranks of data) apart.
CLOVER_HD inline std::array<uint32_t, 4> random_bits(uint64_t seed, Stream stream, uint32_t substream, uint32_t step, uint64_t element) {
    return philox({uint32_t(element), uint32_t(element >> 32), stream_word(stream, substream), step}, {uint32_t(seed), uint32_t(seed >> 32)});
}

/// What rounds element `element` of a parameter at random: 0 … 65535 (kernels/optimizer.h). Eight neighbours share one draw: word k has the noise of elements
/// 2 k, in its lower half, and 2 k + 1.
struct RoundingKey {
    uint64_t seed;
    uint32_t key, step;
    CLOVER_HD std::array<uint32_t, 4> draw(uint64_t element) const { return random_bits(seed, Stream::rounding, key, step, element / 8); }
    /// Of elements 4 i … 4 i + 3 in two words; `element` is one of them. Chosen, not indexed: a GPU would keep an array that is indexed in memory.
    CLOVER_HD std::array<uint32_t, 2> four(uint64_t element) const {
        const std::array<uint32_t, 4> words = draw(element);
        return element & 4 ? std::array<uint32_t, 2>{words[2], words[3]} : std::array<uint32_t, 2>{words[0], words[1]};
    }
    CLOVER_HD uint32_t noise(uint64_t element) const {
        const std::array<uint32_t, 2> words = four(element);
        const uint32_t word = element & 2 ? words[1] : words[0];
        return element & 1 ? word >> 16 : word & 0xffffu;
    }
};

/// Uniform in [0, 1): 24 bits.
CLOVER_HD inline float uniform(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

/// Standard normal by Box-Muller from the first two words.
inline float normal(const std::array<uint32_t, 4>& bits) {
    const double u = (double(bits[0]) + 1.0) * 0x1p-32, angle = 2.0 * 3.14159265358979323846 * double(bits[1]) * 0x1p-32;
    return float(std::sqrt(-2.0 * std::log(u)) * std::cos(angle));
}

}  // namespace clover
