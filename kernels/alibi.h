// ALiBi's slopes (Press et al. 2022): with n heads, n a power of two, head i has 2^(−8 (i + 1) / n). Otherwise the first
// c = 2^⌊log2 n⌋ heads have those of c heads and the others every second one of 2c heads, from the first on.
// The slopes belong to the model's heads: a tensor parallel rank takes its part of this list.
#pragma once
#include <cmath>
#include <cstdint>

namespace clover {

inline void alibi_slopes(int64_t heads, float* out) {
    int64_t whole = 1;
    while (whole * 2 <= heads) whole *= 2;
    for (int64_t i = 0; i < heads; i++) {
        const double exponent = i < whole ? double(i + 1) / double(whole) : double(2 * (i - whole) + 1) / double(2 * whole);
        out[i] = float(std::exp2(-8 * exponent));
    }
}

}  // namespace clover
