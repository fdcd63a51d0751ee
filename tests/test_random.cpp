#include <doctest/doctest.h>

#include <vector>

#include "../kernels/random.h"

using namespace clover;

namespace {

using Words = std::array<uint32_t, 4>;

TEST_SUITE("random") {
    TEST_CASE("Philox4x32-10 gives Random123's known answers") {
        // kat_vectors of Random123 (Salmon et al.), philox4x32 10.
        CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
        CHECK(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
        CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
    }
    TEST_CASE("every argument tells numbers apart") {
        const Words here = random_bits(1, Stream::dropout, 2, 3, 4);
        CHECK(here == random_bits(1, Stream::dropout, 2, 3, 4));
        CHECK(here != random_bits(2, Stream::dropout, 2, 3, 4));
        CHECK(here != random_bits(1 + (uint64_t{1} << 32), Stream::dropout, 2, 3, 4));
        CHECK(here != random_bits(1, Stream::sampling, 2, 3, 4));
        CHECK(here != random_bits(1, Stream::dropout, 3, 3, 4));
        CHECK(here != random_bits(1, Stream::dropout, 2, 4, 4));
        CHECK(here != random_bits(1, Stream::dropout, 2, 3, 5));
        CHECK(here != random_bits(1, Stream::dropout, 2, 3, 4 + (uint64_t{1} << 32)));
    }
    TEST_CASE("uniform is in [0, 1) and has its moments") {
        CHECK(uniform(0) == 0);
        CHECK(uniform(~0u) < 1);
        constexpr int n = 1 << 18;
        double sum = 0, squares = 0;
        for (int i = 0; i < n; i++) {
            const double u = uniform(random_bits(7, Stream::sampling, 0, 0, uint64_t(i))[2]);
            sum += u, squares += u * u;
        }
        // Five standard errors: of the mean √(1/12 n), of the second moment √(4/45 n).
        CHECK(std::abs(sum / n - 0.5) <= 5 * std::sqrt(1.0 / 12 / n));
        CHECK(std::abs(squares / n - 1.0 / 3) <= 5 * std::sqrt(4.0 / 45 / n));
    }
    TEST_CASE("normal has the moments of a standard normal") {
        constexpr int n = 1 << 18;
        double moments[5] = {}, neighbours = 0, before = 0;
        int beyond_three = 0;
        for (int i = 0; i < n; i++) {
            const double x = normal(random_bits(7, Stream::initialisation, 1, 0, uint64_t(i)));
            for (int k = 1; k <= 4; k++) moments[k] += std::pow(x, k) / n;
            beyond_three += std::abs(x) > 3;
            neighbours += x * before / n;
            before = x;
        }
        // Five standard errors each; the variances of x, x², x³, x⁴ are 1, 2, 15, 96.
        const double error = 5 / std::sqrt(double(n));
        CHECK(std::abs(moments[1]) <= error);
        CHECK(std::abs(moments[2] - 1) <= error * std::sqrt(2.0));
        CHECK(std::abs(moments[3]) <= error * std::sqrt(15.0));
        CHECK(std::abs(moments[4] - 3) <= error * std::sqrt(96.0));
        CHECK(std::abs(neighbours) <= error);
        CHECK(std::abs(beyond_three - 0.0026998 * n) <= 5 * std::sqrt(0.0027 * n));
        // The ends of the words: neither log 0 nor a NaN.
        CHECK(std::isfinite(normal({0, 0, 0, 0})));
        CHECK(std::isfinite(normal({~0u, ~0u, 0, 0})));
    }
}

}  // namespace
