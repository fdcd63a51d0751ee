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
#include <cstring>

namespace simt {
namespace {

constexpr int M = 16, N = 8, K = 16;
constexpr int least_exponent = -126;
constexpr uint32_t canonical_nan = 0x7fffffffu;

// The N columns of a row at once.
typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef double f64x8 __attribute__((vector_size(64)));
typedef int64_t i64x8 __attribute__((vector_size(64)));

float bf16_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
bool finite(uint16_t bits) { return (bits & 0x7f80u) != 0x7f80u; }

// Of a factor: zero is given an exponent so low that its products never set E, which the addend keeps at −126 or above.
int factor_exponent(uint16_t bits) { return (bits & 0x7fffu) == 0 ? -1000 : std::max(int(bits >> 7 & 0xff) - 127, least_exponent); }

i32x8 larger(i32x8 a, i32x8 b) { return a > b ? a : b; }
i32x8 exponents(f32x8 x) { return larger((std::bit_cast<i32x8>(x) >> 23 & 0xff) - 127, i32x8{} + least_exponent); }
f64x8 powers_of_two(i32x8 e) { return std::bit_cast<f64x8>(__builtin_convertvector(e + 1023, i64x8) << 52); }
f64x8 to_f64(f32x8 x) { return __builtin_convertvector(x, f64x8); }
// Of numbers that fit an int32.
f64x8 truncated(f64x8 x) { return __builtin_convertvector(__builtin_convertvector(x, i32x8), f64x8); }
f64x8 magnitude(f64x8 x) { return x < 0 ? -x : x; }

f32x8 round_toward_zero(f64x8 x) {
    const f32x8 nearest = __builtin_convertvector(x, f32x8);
    // A comparison is −1 where it holds: one step of the bits toward zero.
    const i64x8 step = (magnitude(to_f64(nearest)) > magnitude(x)) & (magnitude(x) < 0x1p128);
    return std::bit_cast<f32x8>(std::bit_cast<i32x8>(nearest) + __builtin_convertvector(step, i32x8));
}

f32x8 row_of(const float (&c)[N]) {
    f32x8 row;
    std::memcpy(&row, c, sizeof row);
    return row;
}

void chain(TensorCoreTile& t) {
    f32x8 b[K];
    for (int k = 0; k < K; k++)
        for (int j = 0; j < N; j++) b[k][j] = bf16_value(t.b[k][j]);
    for (int i = 0; i < M; i++) {
        f32x8 c = row_of(t.c[i]);
        for (int k = 0; k < K; k++) c += bf16_value(t.a[i][k]) * b[k];
        std::memcpy(t.c[i], &c, sizeof c);
    }
}

struct Factors {
    double a[M][K];
    int a_exponent[M][K];
    f64x8 b[K];
    i32x8 b_exponent[K];
};

// One group of products for a row of C, all finite. An aligned term is below 2^(F+2), so it fits an int32.
void add_group(float (&row)[N], const Factors& f, int i, int first, int last, int F) {
    const f32x8 c = row_of(row);
    i32x8 E = exponents(c);
    for (int k = first; k < last; k++) E = larger(E, f.a_exponent[i][k] + f.b_exponent[k]);
    const f64x8 scale = powers_of_two(F - E);
    f64x8 sum = truncated(to_f64(c) * scale);
    for (int k = first; k < last; k++) sum += truncated(f.a[i][k] * f.b[k] * scale);
    const f32x8 result = round_toward_zero(sum * powers_of_two(E - F));
    std::memcpy(row, &result, sizeof result);
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
    const auto value = [&](uint16_t bits) {
        special |= !finite(bits);
        return finite(bits) ? bf16_value(bits) : 0.0f;
    };
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) f.a[i][k] = value(t.a[i][k]), f.a_exponent[i][k] = factor_exponent(t.a[i][k]);
    for (int k = 0; k < K; k++)
        for (int j = 0; j < N; j++) f.b[k][j] = value(t.b[k][j]), f.b_exponent[k][j] = factor_exponent(t.b[k][j]);
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
