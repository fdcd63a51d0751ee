#include "curve.h"

#include <algorithm>
#include <cmath>

namespace clover {
namespace {

/// Where stretches begin, and the end: three quarters of them are equally long, the others grow by a factor, so that the start of a run can be looked at closely.
std::vector<size_t> stretches_of(size_t n, int64_t count) {
    const int64_t even = std::max<int64_t>(count * 3 / 4, 1), growing = std::max<int64_t>(count - even, 1);
    std::vector<size_t> begin;
    for (int64_t k = 0; k <= even; k++) begin.push_back(size_t(double(n) * double(k) / double(even)));
    for (int64_t k = 0; k < growing; k++) begin.push_back(size_t(std::pow(double(n), double(k) / double(growing))));
    std::sort(begin.begin(), begin.end());
    begin.erase(std::unique(begin.begin(), begin.end()), begin.end());
    return begin;
}

}  // namespace

Points thinned(const Points& points, int64_t most) {
    const size_t n = points.size();
    if (n <= size_t(most)) return points;
    const std::vector<size_t> begin = stretches_of(n, most / 2);
    std::vector<size_t> keep = {0, n - 1};
    for (size_t k = 0; k + 1 < begin.size(); k++) {
        size_t least = n, largest = n, broken = n;
        for (size_t i = begin[k]; i < begin[k + 1]; i++) {
            const double value = points[i].value;
            if (!std::isfinite(value)) broken = std::min(broken, i);
            else if (least == n) least = largest = i;
            else if (value < points[least].value) least = i;
            else if (value > points[largest].value) largest = i;
        }
        for (const size_t i : {least, largest, broken})
            if (i < n) keep.push_back(i);
    }
    std::sort(keep.begin(), keep.end());
    keep.erase(std::unique(keep.begin(), keep.end()), keep.end());
    Points kept;
    for (const size_t i : keep) kept.push_back(points[i]);
    return kept;
}

Points stretch_means(const Points& points, int64_t count) {
    if (points.size() <= size_t(count)) return points;
    const std::vector<size_t> begin = stretches_of(points.size(), count);
    Points means;
    for (size_t k = 0; k + 1 < begin.size(); k++) {
        double sum = 0;
        for (size_t i = begin[k]; i < begin[k + 1]; i++) sum += points[i].value;
        means.push_back({points[begin[k + 1] - 1].step, sum / double(begin[k + 1] - begin[k])});
    }
    return means;
}

Points smoothed(const Points& points, double weight) {
    if (points.size() < 2 || weight <= 0) return points;
    const double range = double(points.back().step - points.front().step);
    Points smooth = points;
    double sum = 0, weights = 0;
    for (size_t i = 0; i < points.size(); i++) {
        const size_t before = i == 0 ? 0 : i - 1;
        const double keep = std::pow(weight, double(points[before + 1].step - points[before].step) / range * 1000);
        sum = sum * keep + points[i].value * (1 - keep);
        weights = weights * keep + (1 - keep);
        smooth[i].value = sum / weights;
        if (!std::isfinite(points[i].value)) sum = weights = 0;
    }
    return smooth;
}

Band band_over(const std::vector<const Points*>& seeds) {
    Band band;
    if (seeds.empty()) return band;
    std::vector<size_t> at(seeds.size(), 0);
    for (const Point& p : *seeds[0]) {
        double sum = 0, low = p.value, high = p.value;
        bool everywhere = true;
        for (size_t k = 0; k < seeds.size() && everywhere; k++) {
            const Points& other = *seeds[k];
            while (at[k] < other.size() && other[at[k]].step < p.step) at[k]++;
            everywhere = at[k] < other.size() && other[at[k]].step == p.step;
            if (!everywhere) break;
            sum += other[at[k]].value;
            low = std::min(low, other[at[k]].value), high = std::max(high, other[at[k]].value);
        }
        if (!everywhere) continue;
        const double mean = sum / double(seeds.size());  // not finite where one seed is not
        band.x.push_back(double(p.step)), band.mean.push_back(mean);
        band.low.push_back(std::isfinite(mean) ? low : mean), band.high.push_back(std::isfinite(mean) ? high : mean);
    }
    return band;
}

}  // namespace clover
