#include "../kernels/simd.h"

#include "pointwise_device.h"

using namespace clover;

namespace {

constexpr int64_t width = simd::width;

float at_bits(uint32_t u) { return std::bit_cast<float>(u); }

/// f of each number, sixteen at a time.
template <class F>
std::vector<float> apply(const std::vector<float>& x, F f) {
    std::vector<float> y(x.size());
    simd::for_vectors(int64_t(x.size()), [&](int64_t i, auto lanes) { simd::store(&y[size_t(i)], f(simd::load(&x[size_t(i)], lanes)), lanes); });
    return y;
}
const auto vector_exp = [](simd::f32x16 v) { return simd::exp(v); };
const auto vector_tanh = [](simd::f32x16 v) { return simd::tanh(v); };

/// Numbers of every exponent below 2^limit, of both signs.
std::vector<float> sweep(uint32_t limit) {
    std::vector<float> x;
    for (uint32_t u = 0; u < (limit + 127) << 23; u += 9973) x.push_back(at_bits(u)), x.push_back(-at_bits(u));
    return x;
}

TEST_SUITE("simd") {
    TEST_CASE("exp") {
        const std::vector<float> x = sweep(7), y = apply(x, vector_exp);
        double worst = 0;
        for (size_t i = 0; i < x.size(); i++) {
            const double want = std::exp(double(x[i]));
            if (want >= 0x1p-126 && want <= double(std::numeric_limits<float>::max())) worst = std::max(worst, std::abs(y[i] - want) / want);
            if (want < 0x1p-126) CHECK(std::abs(y[i] - want) <= 0x1p-148);  // a unit or two in the last place of denormal numbers
        }
        CHECK(worst <= 1.0e-7);
        const std::vector<float> special = {-INFINITY, -1e30f, -3.4e38f, -105, INFINITY, 1e30f, 89, 0, -0.0f};
        const std::vector<float> want = {0, 0, 0, 0, INFINITY, INFINITY, INFINITY, 1, 1};
        CHECK(apply(special, vector_exp) == want);
        for (float nan : apply({NAN, -NAN}, vector_exp)) CHECK(std::isnan(nan));
    }
    TEST_CASE("tanh") {
        const std::vector<float> x = sweep(5), y = apply(x, vector_tanh);
        double worst = 0;
        for (size_t i = 0; i < x.size(); i++) {
            const double want = std::tanh(double(x[i]));
            if (std::abs(want) >= 0x1p-126) worst = std::max(worst, std::abs((y[i] - want) / want));
        }
        CHECK(worst <= 2.0e-7);
        CHECK(apply({INFINITY, -INFINITY, 1e30f, -1e30f, 0}, vector_tanh) == std::vector<float>{1, -1, 1, -1, 0});
        CHECK(std::isnan(apply({NAN}, vector_tanh)[0]));
    }
    TEST_CASE("sqrt, max and min, of NaN too") {
        CHECK(apply({4, 2, 0, 0x1p-126f}, [](simd::f32x16 v) { return simd::sqrt(v); }) == std::vector<float>{2, std::sqrt(2.0f), 0, 0x1p-63f});
        CHECK(apply({1, 3, NAN, -INFINITY}, [](simd::f32x16 v) { return simd::max(v, simd::splat(2)); }) == std::vector<float>{2, 3, 2, 2});
        CHECK(apply({1, 3, NAN, -INFINITY}, [](simd::f32x16 v) { return simd::min(v, simd::splat(2)); }) == std::vector<float>{1, 2, 2, -INFINITY});
        CHECK(std::isnan(apply({NAN}, [](simd::f32x16 v) { return simd::max(simd::splat(2), v); })[0]));
        for (int lane = 0; lane < width; lane++) {
            simd::f32x16 v = {};
            v[lane] = 1;
            CHECK(simd::any_greater(v, simd::f32x16{}));
            CHECK(!simd::any_greater(-v, simd::f32x16{}));
        }
    }
    TEST_CASE_TEMPLATE("16-bit numbers are stored as from_float stores them and loaded as to_float loads them", T, bf16, f16) {
        // Every upper half, with lower halves around the ties of both.
        std::vector<float> x;
        for (uint32_t upper = 0; upper < 65536; upper++)
            for (uint32_t lower : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xefffu, 0xf000u, 0xffffu})
                x.push_back(at_bits(upper << 16 | lower));
        x.pop_back();  // the last vector is a part of one
        int64_t wrong = 0, wrong_back = 0;
        simd::for_vectors(int64_t(x.size()), [&](int64_t i, auto lanes) {
            T narrow[width];
            simd::store(narrow, simd::load(&x[size_t(i)], lanes), lanes);
            for (int64_t k = 0; k < lanes; k++) wrong += narrow[k].bits != from_float<T>(x[size_t(i + k)]).bits;
        });
        for (uint32_t first = 0; first < 65536; first += width) {
            T narrow[width];
            float wide[width];
            for (uint32_t k = 0; k < width; k++) narrow[k].bits = uint16_t(first + k);
            for (int64_t n : {width, width - 1}) {
                simd::store(wide, simd::load(narrow, n), n);
                for (int64_t k = 0; k < n; k++) wrong_back += std::bit_cast<uint32_t>(wide[k]) != std::bit_cast<uint32_t>(to_float(narrow[k]));
            }
            simd::store(wide, simd::load(narrow));
            for (int64_t k = 0; k < width; k++) wrong_back += std::bit_cast<uint32_t>(wide[k]) != std::bit_cast<uint32_t>(to_float(narrow[k]));
        }
        CHECK(wrong == 0);
        CHECK(wrong_back == 0);
    }
    TEST_CASE_TEMPLATE("parts of vectors: the rest is 0 when read and untouched when written", T, bf16, f16) {
        for (int64_t n = 0; n <= width; n++) {
            CAPTURE(n);
            // Exactly n elements, so that the sanitizer sees a read or a write beyond.
            const std::vector<float> from(size_t(n), 3.0f);
            const std::vector<T> from_narrow(size_t(n), from_float<T>(3));
            const simd::f32x16 v = simd::load(from.data(), n), v_narrow = simd::load(from_narrow.data(), n), kept = simd::keep(simd::splat(3), n, 7);
            float to[width + 1];
            T to_narrow[width + 1];
            std::fill_n(to, width + 1, -1.0f);
            std::fill_n(to_narrow, width + 1, from_float<T>(-1));
            simd::store(to, simd::splat(5), n);
            simd::store(to_narrow, simd::splat(5), n);
            for (int64_t i = 0; i < width; i++) {
                CHECK(v[i] == (i < n ? 3 : 0));
                CHECK(v_narrow[i] == (i < n ? 3 : 0));
                CHECK(kept[i] == (i < n ? 3 : 7));
            }
            for (int64_t i = 0; i <= width; i++) {
                CHECK(to[i] == (i < n ? 5 : -1));
                CHECK(to_float(to_narrow[i]) == (i < n ? 5 : -1));
            }
        }
    }
    TEST_CASE("for_vectors and the sums visit each element once") {
        for (int64_t n : {0, 1, 15, 16, 17, 63, 64, 65, 79, 80, 81, 1000}) {
            CAPTURE(n);
            std::vector<float> x(size_t(n), 0.0f);
            simd::for_vectors(n, [&](int64_t i, auto lanes) { simd::store(&x[size_t(i)], simd::load(&x[size_t(i)], lanes) + 1.0f, lanes); });
            for (float v : x) CHECK(v == 1);
            for (size_t i = 0; i < x.size(); i++) x[i] = float(i + 1);
            const auto both = simd::sums_over<2>(n, [&](int64_t i, auto lanes) {
                const simd::f32x16 v = simd::load(&x[size_t(i)], lanes);
                return std::array<simd::f32x16, 2>{v, v + 1.0f};  // lanes beyond the end hold 1 and must not count
            });
            CHECK(both[0] == float(n * (n + 1) / 2));
            CHECK(both[1] == float(n * (n + 1) / 2 + n));
            CHECK(simd::sum_over(n, [&](int64_t i, auto lanes) { return simd::load(&x[size_t(i)], lanes); }) == both[0]);
        }
    }
    TEST_CASE("sum and maximum of the lanes") {
        for (int lane = 0; lane < width; lane++) {
            simd::f32x16 v = simd::splat(-1);
            v[lane] = float(lane + 2);
            CHECK(simd::sum(v) == float(lane + 2 - 15));
            CHECK(simd::max(v) == float(lane + 2));
        }
    }
}

TEST_SUITE("bf16") {
    TEST_CASE("every bf16 survives the way through float") {
        int64_t changed = 0;
        for (uint32_t bits = 0; bits < 65536; bits++) {
            const bf16 x{uint16_t(bits)};
            const bool nan = (bits & 0x7fffu) > 0x7f80u;
            // A NaN stays a NaN of the same sign and payload; a signalling one turns quiet.
            changed += to_bf16(to_float(x)).bits != (nan ? bits | 0x40u : bits);
        }
        CHECK(changed == 0);
    }
    TEST_CASE("the nearest neighbour, the even one of two as near") {
        int64_t wrong = 0;
        // Between each finite positive bf16 and the next, the first of them an even or an odd one.
        for (uint32_t bits = 0; bits < 0x7f80u; bits++)
            for (uint32_t sign : {0u, 0x8000u}) {
                const auto rounded = [&](uint32_t lower) { return to_bf16(at_bits((sign | bits) << 16 | lower)).bits; };
                const uint32_t here = sign | bits, next = here + 1;
                wrong += rounded(1) != here || rounded(0x7fff) != here || rounded(0x8001) != next || rounded(0xffff) != next;
                wrong += rounded(0x8000) != (bits % 2 == 0 ? here : next);
            }
        CHECK(wrong == 0);
        CHECK(to_bf16(std::numeric_limits<float>::max()).bits == 0x7f80);  // rounds to ∞
        CHECK(std::isnan(to_float(to_bf16(at_bits(0x7f800001)))));        // a payload in the lower half alone
    }
}

/// The value of f16 bits, by the definition in IEEE 754.
double f16_value(uint32_t bits) {
    const int exponent = int(bits >> 10 & 31), fraction = int(bits & 0x3ff);
    const double magnitude = exponent == 31  ? (fraction ? double(NAN) : double(INFINITY))
                             : exponent == 0 ? std::ldexp(fraction, -24)
                                             : std::ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000u ? -magnitude : magnitude;
}

TEST_SUITE("f16") {
    TEST_CASE("every f16 is what IEEE 754 says, and survives the way through float") {
        int64_t wrong = 0, changed = 0;
        for (uint32_t bits = 0; bits < 65536; bits++) {
            const f16 x{uint16_t(bits)};
            const bool nan = (bits & 0x7fffu) > 0x7c00u;
            const double value = f16_value(bits);
            wrong += nan ? !std::isnan(to_float(x)) : to_float(x) != value || std::signbit(to_float(x)) != std::signbit(value);
            changed += to_f16(to_float(x)).bits != (nan ? bits | 0x200u : bits);
        }
        CHECK(wrong == 0);
        CHECK(changed == 0);
    }
    TEST_CASE("the nearest neighbour, the even one of two as near") {
        int64_t wrong = 0;
        // Between each finite f16 and the next farther from 0; behind the last comes 2^16, whose place ∞ takes.
        for (uint32_t bits = 0; bits < 0x7c00u; bits++) {
            const double here = f16_value(bits), next = bits == 0x7bffu ? 65536 : f16_value(bits + 1);
            const float tie = float((here + next) / 2);
            for (uint32_t sign : {0u, 0x8000u}) {
                const auto rounded = [&](float x) { return to_f16(sign ? -x : x).bits; };
                wrong += rounded(std::nextafter(tie, 0.0f)) != (sign | bits) || rounded(std::nextafter(tie, INFINITY)) != (sign | (bits + 1));
                wrong += rounded(tie) != (sign | (bits % 2 == 0 ? bits : bits + 1));
                wrong += rounded(std::nextafter(float(next), 0.0f)) != (sign | (bits + 1));
            }
        }
        CHECK(wrong == 0);
    }
    TEST_CASE("overflow, subnormals and NaN") {
        CHECK(to_float(to_f16(65519)) == 65504);
        CHECK(to_float(to_f16(65520)) == INFINITY);
        CHECK(to_float(to_f16(-65520)) == -INFINITY);
        CHECK(to_f16(std::numeric_limits<float>::max()).bits == 0x7c00);
        CHECK(to_f16(INFINITY).bits == 0x7c00);
        CHECK(to_float(to_f16(0x1p-24f)) == 0x1p-24f);   // the least
        CHECK(to_f16(0x1p-25f).bits == 0);               // half of it: the even one is 0
        CHECK(to_f16(0x1.8p-25f).bits == 1);
        CHECK(to_f16(-0x1p-126f).bits == 0x8000);
        CHECK(to_float(to_f16(0x1.ff8p-15f)) == 0x1.ff8p-15f);  // the greatest
        CHECK(to_float(to_f16(0x1.ffcp-15f)) == 0x1p-14f);
        CHECK(to_f16(at_bits(0x7f800001)).bits == 0x7e00);  // a payload in the lower bits alone
        CHECK(to_f16(at_bits(0xffc02000)).bits == 0xfe01);
        CHECK(std::bit_cast<uint32_t>(to_float(f16{0x7c01})) == 0x7fc02000);
    }
}

}  // namespace
