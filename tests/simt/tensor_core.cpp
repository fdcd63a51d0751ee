// How a tensor core adds the products of mma.m16n8k16 (facts: cuda.md, section 1.4). PTX leaves order and rounding open, so results
// must hold under three models:
//   exact  a chain over k in f32, each step rounded to nearest. A product of two bf16 has at most 16 significant bits: it is exact.
//   sm80   two groups of 8 products with F = 24, the first group's result being the addend of the second.
//   sm90   one group of 16 products with F = 25.
// A group aligns its products and the addend c to the largest of their exponents, E, cuts each off toward zero below 2^(E−F), adds the
// integers exactly and rounds the sum toward zero to f32:
//   d = rz( 2^(E−F) · ( trunc(c 2^(F−E)) + Σ trunc(a_k b_k 2^(F−E)) ) )
// The exponent of a product is e_a + e_b, its significand in [1, 4) not being renormalised; subnormal numbers and zero have
// exponent −126. Any NaN result is 0x7fffffff; exact cancellation gives +0; overflow gives infinity.
#include "tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace simt {
namespace {

constexpr int M = 16, N = 8, K = 16;
constexpr int least_exponent = -126;
constexpr uint32_t canonical_nan = 0x7fffffffu;

float bf16_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
bool finite(uint16_t bits) { return (bits & 0x7f80u) != 0x7f80u; }

int exponent(float x) { return std::max(int(std::bit_cast<uint32_t>(x) >> 23 & 0xff) - 127, least_exponent); }
// Of a factor: zero is given an exponent so low that its products never set E, which the addend keeps at −126 or above.
int factor_exponent(uint16_t bits) { return (bits & 0x7fffu) == 0 ? -1000 : exponent(bf16_value(bits)); }

double power_of_two(int e) { return std::bit_cast<double>(uint64_t(1023 + e) << 52); }

float round_toward_zero(double x) {
    const float nearest = float(x);
    const bool away = std::abs(double(nearest)) > std::abs(x), overflow = std::abs(x) >= 0x1p128;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(nearest) - uint32_t(away & !overflow));
}

void chain(TensorCoreTile& t) {
    float a[M][K], b[K][N];
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) a[i][k] = bf16_value(t.a[i][k]);
    for (int k = 0; k < K; k++)
        for (int j = 0; j < N; j++) b[k][j] = bf16_value(t.b[k][j]);
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++)
            for (int j = 0; j < N; j++) t.c[i][j] += a[i][k] * b[k][j];
}

struct Factors {
    double a[M][K], b[K][N];
    int a_exponent[M][K], b_exponent[K][N];
};

// One group of products for a row of C, all finite. An aligned term is below 2^(F+2), so it fits an int32.
void add_group(float (&c)[N], const Factors& f, int row, int first, int last, int F) {
    int E[N];
    double scale[N], sum[N];
    for (int j = 0; j < N; j++) E[j] = exponent(c[j]);
    for (int k = first; k < last; k++)
        for (int j = 0; j < N; j++) E[j] = std::max(E[j], f.a_exponent[row][k] + f.b_exponent[k][j]);
    for (int j = 0; j < N; j++) scale[j] = power_of_two(F - E[j]);
    for (int j = 0; j < N; j++) sum[j] = double(int32_t(c[j] * scale[j]));
    for (int k = first; k < last; k++)
        for (int j = 0; j < N; j++) sum[j] += double(int32_t(f.a[row][k] * f.b[k][j] * scale[j]));
    for (int j = 0; j < N; j++) c[j] = round_toward_zero(sum[j] * power_of_two(E[j] - F));
}

// Where an operand is infinite or NaN, the sum is infinite or NaN in any precision.
void replace_special(TensorCoreTile& t, const float (&before)[N], int row, int first, int last) {
    for (int j = 0; j < N; j++) {
        double sum = before[j];
        for (int k = first; k < last; k++) sum += double(bf16_value(t.a[row][k])) * double(bf16_value(t.b[k][j]));
        if (!std::isfinite(sum)) t.c[row][j] = float(sum);
    }
}

// Infinities and NaN become zero here; true if there were any.
bool split(Factors& f, const TensorCoreTile& t) {
    bool special = false;
    const auto factor = [&](uint16_t bits, double& value, int& exponent_of) {
        special |= !finite(bits);
        value = finite(bits) ? bf16_value(bits) : 0;
        exponent_of = factor_exponent(bits);
    };
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) factor(t.a[i][k], f.a[i][k], f.a_exponent[i][k]);
    for (int k = 0; k < K; k++)
        for (int j = 0; j < N; j++) factor(t.b[k][j], f.b[k][j], f.b_exponent[k][j]);
    return special;
}

void grouped(TensorCoreTile& t, int group, int F) {
    Factors f;
    const bool special_factors = split(f, t);
    for (int i = 0; i < M; i++)
        for (int first = 0; first < K; first += group) {
            float before[N];
            bool special = special_factors;
            for (int j = 0; j < N; j++) {
                before[j] = t.c[i][j];
                special |= !std::isfinite(before[j]);
                t.c[i][j] = std::isfinite(before[j]) ? before[j] : 0;
            }
            add_group(t.c[i], f, i, first, first + group, F);
            if (special) replace_special(t, before, i, first, first + group);
        }
}

}  // namespace

void multiply(TensorCoreTile& tile, MmaModel model) {
    switch (model) {
        case MmaModel::exact: chain(tile); break;
        case MmaModel::sm80: grouped(tile, 8, 24); break;
        case MmaModel::sm90: grouped(tile, 16, 25); break;
    }
    for (auto& row : tile.c)
        for (float& x : row)
            if (std::isnan(x)) x = std::bit_cast<float>(canonical_nan);
}

}  // namespace simt
