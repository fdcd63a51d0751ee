// ALiBi's slopes and the sinusoids, against values from the papers' formulas worked out by hand or in another way.
#include <algorithm>

#include "../kernels/alibi.h"
#include "../kernels/sinusoid.h"
#include "support.h"

using namespace clover;

namespace {

std::vector<double> log2_slopes(int64_t heads) {
    std::vector<float> slopes(static_cast<size_t>(heads));
    alibi_slopes(heads, slopes.data());
    std::vector<double> logs;
    for (float s : slopes) logs.push_back(std::log2(double(s)));
    return logs;
}

void check_log2_slopes(int64_t heads, const std::vector<double>& want) {
    CAPTURE(heads);
    const auto got = log2_slopes(heads);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); i++) CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-6));
}

}  // namespace

TEST_SUITE_BEGIN("positions");

TEST_CASE("alibi slopes of any number of heads") {
    check_log2_slopes(1, {-8});
    check_log2_slopes(2, {-4, -8});
    check_log2_slopes(3, {-4, -8, -2});
    check_log2_slopes(6, {-2, -4, -6, -8, -1, -3});
    check_log2_slopes(8, {-1, -2, -3, -4, -5, -6, -7, -8});
    check_log2_slopes(12, {-1, -2, -3, -4, -5, -6, -7, -8, -.5, -1.5, -2.5, -3.5});
}

TEST_CASE("alibi slopes of BLOOM 176B") {
    std::vector<float> s(112);
    alibi_slopes(112, s.data());
    CHECK(s[0] == doctest::Approx(0.91700404).epsilon(1e-6));
    CHECK(s[63] == doctest::Approx(0.00390625).epsilon(1e-6));
    CHECK(s[64] == doctest::Approx(0.95760328).epsilon(1e-6));
    CHECK(s[65] == doctest::Approx(0.87812608).epsilon(1e-6));
    CHECK(s[111] == doctest::Approx(0.01631678).epsilon(1e-6));
    CHECK(std::log2(s[111]) == doctest::Approx(-5.9375).epsilon(1e-6));
}

TEST_CASE("sinusoid: halves one after the other, frequencies 10000^(-2c/C)") {
    const int64_t T = 70, C = 6;
    std::vector<float> R(size_t(T * C));
    sinusoid(T, C, R.data());
    for (int64_t c = 0; c < 3; c++) {
        CHECK(R[size_t(c)] == 0);
        CHECK(R[size_t(3 + c)] == 1);
    }
    // 10000^(-1/3) and 10000^(-2/3).
    const double w[3] = {1, 0.0464158883361277889, 0.00215443469003188372};
    for (int64_t d = 0; d < T; d++)
        for (int64_t c = 0; c < 3; c++) {
            CHECK(std::abs(double(R[size_t(d * C + c)]) - std::sin(double(d) * w[c])) < 1e-7);
            CHECK(std::abs(double(R[size_t(d * C + 3 + c)]) - std::cos(double(d) * w[c])) < 1e-7);
        }
}

TEST_CASE("sinusoid: each row is the one before turned by the frequency, far out too") {
    const int64_t T = 4096, C = 64;
    std::vector<float> R(size_t(T * C));
    sinusoid(T, C, R.data());
    double worst = 0;
    for (int64_t c = 0; c < C / 2; c++) {
        const double w = std::exp(-2.0 * double(c) / double(C) * std::log(10000.0)), sw = std::sin(w), cw = std::cos(w);
        double s = 0, k = 1;
        for (int64_t d = 0; d < T; d++) {
            worst = std::max({worst, std::abs(s - double(R[size_t(d * C + c)])), std::abs(k - double(R[size_t(d * C + C / 2 + c)]))});
            const double turned = s * cw + k * sw;
            k = k * cw - s * sw;
            s = turned;
        }
    }
    CHECK(worst < 1e-7);
}

TEST_CASE("sinusoid of odd width ends with a column of zeros") {
    std::vector<float> R(5 * 5, 7.0f);
    sinusoid(5, 5, R.data());
    for (size_t d = 0; d < 5; d++) CHECK(R[d * 5 + 4] == 0);
    CHECK(R[5] == doctest::Approx(std::sin(1.0)));
    CHECK(R[7] == doctest::Approx(std::cos(1.0)));
    CHECK(R[6] == doctest::Approx(std::sin(std::pow(10000.0, -0.4))));
}

TEST_SUITE_END();
