// What is done to a series before it is drawn: thinned to what a picture can show, smoothed, several seeds made one curve with a band.
#pragma once
#include <vector>

#include "run_data.h"

namespace clover {

/// At most about `most` of the points, each as it was logged: of each stretch the smallest and the largest value, so that no spike is lost, and one that is not
/// finite; the first point and the last one always.
Points thinned(const Points& points, int64_t most);

/// The mean of each of `count` stretches of about as many points, at the stretch's last step: what smoothing works on where points are thinned.
Points stretch_means(const Points& points, int64_t count);

/// Exponential moving average, debiased, by distance in steps: a point that lies a thousandth of the whole range before has `weight` (0 to 1) of the influence. So the
/// same weight means the same smoothness however many points there are (as Weights & Biases' time-weighted average). Values that are not finite stay and end it.
Points smoothed(const Points& points, double weight);

/// Mean, smallest and largest value at each step that all of the series have.
struct Band {
    std::vector<double> x, mean, low, high;
};
Band band_over(const std::vector<const Points*>& seeds);

}  // namespace clover
