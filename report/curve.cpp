#include "curve.h"

#include <algorithm>
#include <cmath>

namespace clover {
namespace {

size_t begin_of(size_t stretch, size_t stretches, size_t n) { return stretch * n / stretches; }

}  // namespace

Points thinned(const Points& points, int64_t most) {
    const size_t n = points.size(), stretches = size_t(std::max<int64_t>(most / 2, 1));
    if (n <= size_t(most)) return points;
    Points kept;
    for (size_t k = 0; k < stretches; k++) {
        std::vector<size_t> keep;  // at most five
        if (k == 0) keep.push_back(0);
        if (k + 1 == stretches) keep.push_back(n - 1);
        size_t least = n, largest = n, broken = n;
        for (size_t i = begin_of(k, stretches, n); i < begin_of(k + 1, stretches, n); i++) {
            if (!std::isfinite(points[i].value)) {
                if (broken == n) broken = i;
                continue;
            }
            if (least == n || points[i].value < points[least].value) least = i;
            if (largest == n || points[i].value > points[largest].value) largest = i;
        }
        for (const size_t i : {least, largest, broken})
            if (i < n) keep.push_back(i);
        std::sort(keep.begin(), keep.end());
        keep.erase(std::unique(keep.begin(), keep.end()), keep.end());
        for (const size_t i : keep) kept.push_back(points[i]);
    }
    return kept;
}

Points stretch_means(const Points& points, int64_t count) {
    const size_t n = points.size(), stretches = std::min(n, size_t(std::max<int64_t>(count, 1)));
    Points means;
    for (size_t k = 0; k < stretches; k++) {
        const size_t begin = begin_of(k, stretches, n), end = begin_of(k + 1, stretches, n);
        double sum = 0;
        for (size_t i = begin; i < end; i++) sum += points[i].value;
        means.push_back({points[end - 1].step, sum / double(end - begin)});
    }
    return means;
}

Points smoothed(const Points& points, double weight) {
    if (points.size() < 2 || weight <= 0) return points;
    const double range = double(points.back().step - points.front().step);
    Points smooth = points;
    double sum = 0, weights = 0;
    for (size_t i = 0; i < points.size(); i++) {
        const double keep = i == 0 ? 0 : std::pow(weight, double(points[i].step - points[i - 1].step) / range * 1000);
        sum = sum * keep + points[i].value;
        weights = weights * keep + 1;
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
