// Thinning, smoothing and bands.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "../report/curve.h"

using namespace clover;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

Points wave(int64_t n) {
    Points points;
    for (int64_t i = 0; i < n; i++) points.push_back({10 * i, std::sin(double(i * i % 1009))});
    return points;
}

/// By the definition: what lies a thousandth of the range before counts `weight`, a point counts for the steps since the one before it.
double smoothed_by_definition(const Points& p, double weight, size_t at) {
    const double unit = double(p.back().step - p[0].step) / 1000;
    double sum = 0, weights = 0;
    for (size_t j = 0; j <= at; j++) {
        const double before = j == 0 ? double(2 * p[0].step - p[1].step) : double(p[j - 1].step);
        const double w = std::pow(weight, double(p[at].step - p[j].step) / unit) - std::pow(weight, (double(p[at].step) - before) / unit);
        sum += w * p[j].value, weights += w;
    }
    return sum / weights;
}

}  // namespace

TEST_SUITE("curve") {
    TEST_CASE("thinning keeps logged points: the ends, the extremes, what is not finite") {
        Points points = wave(100000);
        points[54321].value = 50, points[7].value = -50, points[99000].value = nan_value;
        const Points thin = thinned(points, 1500);
        CHECK(thin.size() <= 1503);
        CHECK(thin.size() > 1000);
        CHECK(thin.front().step == 0);
        CHECK(thin.back().step == 999990);
        bool spike = false, dip = false, broken = false;
        for (size_t i = 0; i < thin.size(); i++) {
            const Point& logged = points[size_t(thin[i].step / 10)];
            CHECK((logged.value == thin[i].value || (std::isnan(logged.value) && std::isnan(thin[i].value))));
            if (i > 0) CHECK(thin[i].step > thin[i - 1].step);
            spike = spike || thin[i].value == 50, dip = dip || thin[i].value == -50, broken = broken || std::isnan(thin[i].value);
        }
        CHECK(spike);
        CHECK(dip);
        CHECK(broken);
        // Nor is any stretch of a hundredth without points, and the first steps have more than their share.
        for (size_t k = 0; k < 100; k++)
            CHECK(std::any_of(thin.begin(), thin.end(), [&](const Point& p) { return p.step / 10000 == int64_t(k); }));
        CHECK(std::count_if(thin.begin(), thin.end(), [](const Point& p) { return p.step < 1000; }) > 20);
    }

    TEST_CASE("few points stay as they are") {
        const Points points = wave(1500);
        CHECK(thinned(points, 1500).size() == 1500);
        CHECK(thinned({}, 10).empty());
        CHECK(stretch_means(points, 1500).size() == 1500);
    }

    TEST_CASE("means of stretches add up to the mean of all") {
        const Points points = wave(50000), means = stretch_means(points, 700);
        CHECK(means.size() <= 701);
        CHECK(means.back().step == points.back().step);
        double sum = 0, all = 0;
        int64_t before = -10;
        for (const Point& p : means) sum += p.value * double(p.step - before) / 10, before = p.step;
        for (const Point& p : points) all += p.value;
        CHECK(sum == doctest::Approx(all).epsilon(1e-9));
    }

    TEST_CASE("smoothing follows its definition, also at uneven distances") {
        Points points = wave(300);
        for (size_t i = 200; i < points.size(); i++) points[i].step += int64_t(i * i % 7);
        const Points smooth = smoothed(points, 0.9);
        for (const size_t i : {size_t{0}, size_t{1}, size_t{10}, size_t{250}, size_t{299}})
            CHECK(smooth[i].value == doctest::Approx(smoothed_by_definition(points, 0.9, i)).epsilon(1e-9));
        for (const Point& p : smoothed({{1, 3.0}, {2, 3.0}, {9, 3.0}}, 0.99)) CHECK(p.value == doctest::Approx(3).epsilon(1e-12));
        const Points broken = smoothed({{1, 1.0}, {2, nan_value}, {3, 7.0}}, 0.9);
        CHECK(std::isnan(broken[1].value));
        CHECK(broken[2].value == doctest::Approx(7));
    }

    TEST_CASE("a band goes over the steps that all seeds have") {
        const Points a = {{1, 1.0}, {2, 2.0}, {3, 3.0}, {4, nan_value}}, b = {{1, 3.0}, {3, 9.0}, {4, 1.0}, {5, 1.0}};
        const Band band = band_over({&a, &b});
        CHECK(band.x == std::vector<double>{1, 3, 4});
        CHECK(band.mean[0] == 2);
        CHECK(band.mean[1] == 6);
        CHECK(std::isnan(band.mean[2]));
        CHECK(band.low[1] == 3);
        CHECK(band.high[1] == 9);
        CHECK(std::isnan(band.low[2]));
    }
}
