// Static charts: ticks, places of points, gaps, names that are no markup.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "../report/chart.h"
#include "report_runs.h"

using namespace clover;
using namespace clover::test;

namespace {

Chart simple() {
    Chart c;
    c.title = "a < b & \"c\"";
    c.y_label = "nats";
    c.curves.push_back({.name = "run </svg><script>", .x = {1, 10, 100}, .y = {4, 2, 1}});
    return c;
}

/// The points of the nth line, in the order they are drawn.
std::vector<std::pair<double, double>> line_points(const std::string& svg, int n) {
    std::vector<std::string> paths;
    for (const std::string& path : all_between(svg, "<path class=\"l ", "/>"))
        if (path.find('L') != std::string::npos) paths.push_back(all_between(path, " d=\"", "\"").at(0));
    std::string d = paths.at(size_t(n));
    std::replace_if(d.begin(), d.end(), [](char c) { return c == 'M' || c == 'L'; }, ' ');
    std::istringstream numbers(d);
    std::vector<std::pair<double, double>> points;
    for (double x, y; numbers >> x >> y;) points.emplace_back(x, y);
    return points;
}

}  // namespace

TEST_SUITE("chart") {
    TEST_CASE("ticks") {
        CHECK(linear_ticks(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
        CHECK(linear_ticks(-1, 1, 4) == std::vector<double>{-1, -0.5, 0, 0.5, 1});
        const std::vector<double> small = linear_ticks(2.51, 2.56, 5);
        CHECK(small.size() == 6);
        CHECK(small[1] == doctest::Approx(2.52));
        CHECK(linear_ticks(3, 3, 5) == std::vector<double>{3});
        CHECK(log_ticks(1, 50, 6) == std::vector<double>{1, 2, 5, 10, 20, 50});
        const std::vector<double> many = log_ticks(1e-12, 1, 6);
        CHECK(many.size() <= 8);
        CHECK(many.back() == 1);
    }

    TEST_CASE("points lie where their values are") {
        Chart c = simple();
        c.y_low = 0, c.y_high = 4;
        const auto linear = line_points(to_svg(c), 0);
        REQUIRE(linear.size() == 3);
        CHECK((linear[1].first - linear[0].first) / (linear[2].first - linear[0].first) == doctest::Approx(9.0 / 99).epsilon(0.01));
        CHECK((linear[1].second - linear[0].second) / (linear[2].second - linear[0].second) == doctest::Approx(2.0 / 3).epsilon(0.01));
        c.log_x = c.log_y = true;
        c.y_low = 1;
        const auto log = line_points(to_svg(c), 0);
        CHECK((log[1].first - log[0].first) / (log[2].first - log[0].first) == doctest::Approx(0.5).epsilon(0.01));
        CHECK((log[1].second - log[0].second) / (log[2].second - log[0].second) == doctest::Approx(0.5).epsilon(0.01));
    }

    TEST_CASE("values that are not finite, or not above 0 on a logarithmic axis, leave a gap") {
        Chart c;
        const double nan_value = std::numeric_limits<double>::quiet_NaN();
        c.curves.push_back({.name = "", .x = {1, 2, 3, 4, 5}, .y = {1, 2, nan_value, 3, 4}});
        CHECK(line_points(to_svg(c), 0).size() == 4);
        c.curves[0].y = {1, 2, 0, -1, 4};
        c.log_y = true;
        const std::string svg = to_svg(c);
        CHECK(svg.find("nan") == std::string::npos);
        CHECK(svg.find("inf") == std::string::npos);
        CHECK(line_points(svg, 0).size() == 3);
    }

    TEST_CASE("names are text") {
        const std::string svg = to_svg(simple());
        CHECK(svg.find("a &lt; b &amp; &quot;c&quot;") != std::string::npos);
        CHECK(svg.find("run &lt;/svg&gt;&lt;script&gt;") != std::string::npos);
        CHECK(svg.find("<script") == std::string::npos);
        CHECK(svg.find("</svg>") == svg.size() - 7);
    }

    TEST_CASE("nothing, one point, equal values, bands, several charts") {
        CHECK(to_svg(Chart{}).find("nan") == std::string::npos);
        Chart one;
        one.curves.push_back({.name = "one", .x = {5}, .y = {0}, .points = true});
        one.marks.push_back({.x = 5, .y = 0, .label = "<here>"});
        const std::string svg = to_svg(one);
        CHECK(svg.find("nan") == std::string::npos);
        CHECK(svg.find("<circle") != std::string::npos);
        CHECK(svg.find("<title>&lt;here&gt;</title>") != std::string::npos);
        const Points a = {{1, 1.0}, {2, 2.0}}, b = {{1, 3.0}, {2, 4.0}};
        Chart band;
        band.curves.push_back(curve_over_seeds("arm", {&a, &b}));
        CHECK(band.curves[0].y == std::vector<double>{2, 3});
        CHECK(to_svg(band).find("class=\"f d c0\"") != std::string::npos);
        const std::string two = to_svg(std::vector<Chart>{one, band});
        CHECK(two.find("height=\"840\"") != std::string::npos);
    }

    TEST_CASE("long series are thinned, with their extremes") {
        Points points;
        for (int64_t i = 0; i < 50000; i++) points.push_back({i, i == 33333 ? 9.0 : 1.0 + double(i % 7)/100});
        const Curve curve = curve_of("long", points);
        CHECK(curve.x.size() <= 802);
        CHECK(std::find(curve.y.begin(), curve.y.end(), 9.0) != curve.y.end());
    }
}
