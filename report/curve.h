// What is done to a series before it is drawn: thinned to what a picture can show, smoothed, several seeds made one curve with a band.
#pragma once
#include <vector>

#include "run_data.h"

namespace clover {

/// At most about `most` of the points, each as it was logged: of each stretch the smallest and the largest value, so that no spike is lost, and one that is not
/// finite; the first point and the last one always.
Points thinned(const Points& points, int64_t most);

/// The mean of each of about `count` stretches at the stretch's last step: what smoothing works on where points are thinned.
Points stretch_means(const Points& points, int64_t count);

/// Exponential moving average over steps, debiased: what lies a thousandth of the whole range before has `weight` (0 to 1) of the influence, and a point stands for
/// the steps since the one before it. So a weight means the same smoothness however many points there are and wherever they lie. Values that are not finite stay,
/// and the average begins anew.
Points smoothed(const Points& points, double weight);

/// Mean, smallest and largest value at each step that all of the series have.
struct Band {
    std::vector<double> x, mean, low, high;
};
Band band_over(const std::vector<const Points*>& seeds);

}  // namespace clover
