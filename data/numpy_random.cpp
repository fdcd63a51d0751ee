#include "numpy_random.h"

namespace clover {

NumpyLegacyRandom::NumpyLegacyRandom(uint32_t seed) {
    state_[0] = seed;
    for (uint32_t i = 1; i < 624; i++) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

uint32_t NumpyLegacyRandom::next() {
    if (index_ == 624) {
        for (int i = 0; i < 624; i++) {
            const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % 624] & 0x7fffffffu);
            state_[i] = state_[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0u);
        }
        index_ = 0;
    }
    uint32_t y = state_[index_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint64_t NumpyLegacyRandom::bounded(uint64_t largest) {
    uint64_t mask = largest;
    for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    uint64_t value = 0;
    if (largest == 0) return 0;
    do {
        value = next();
        if (largest > 0xffffffffu) value = value << 32 | next();
        value &= mask;
    } while (value > largest);
    return value;
}

}  // namespace clover
