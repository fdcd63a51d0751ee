// The sinusoids of positions or distances (Vaswani et al. 2017, with the halves one after the other as in Transformer-XL):
//   R_d = [sin(d·ω_0) … sin(d·ω_{C/2−1}), cos(d·ω_0) … cos(d·ω_{C/2−1})],   ω_c = 10000^(−2c/C);   for odd C the last column is 0.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace clover {

/// Fills R (T, C); computed in double, for d·ω needs more than 24 bits from a few thousand positions on.
inline void sinusoid(int64_t T, int64_t C, float* R) {
    const int64_t half = C / 2;
    std::vector<double> frequency(static_cast<size_t>(half));
    for (int64_t c = 0; c < half; c++) frequency[size_t(c)] = std::pow(10000.0, -2.0 * double(c) / double(C));
#pragma omp parallel for if (T * C > (1 << 16))
    for (int64_t d = 0; d < T; d++) {
        float* row = R + d * C;
        for (int64_t c = 0; c < half; c++) {
            const double angle = double(d) * frequency[size_t(c)];
            row[c] = float(std::sin(angle));
            row[half + c] = float(std::cos(angle));
        }
        if (C % 2 == 1) row[C - 1] = 0;
    }
}

}  // namespace clover
