// Static line charts as SVG, for Markdown and for print: axes, linear or logarithmic, a legend, bands, marks. Light or dark as the reader's system is; the colours are
// told apart with every common colour blindness (Okabe and Ito 2008), dashes tell apart more curves than there are colours.
#pragma once
#include <string>
#include <vector>

#include "run_data.h"

namespace clover {

struct Curve {
    std::string name = {};                    // in the legend; empty: not there
    std::vector<double> x = {}, y = {};       // a value that is not finite breaks the line
    std::vector<double> low = {}, high = {};  // a band around it, as long as x, or empty
    int style = -1;                           // colour and dashes; -1: the place among the chart's curves
    bool points = false;                      // a dot at each point, for few of them
};

/// A triangle, with a text that shows when it is pointed at.
struct Mark {
    double x = 0, y = 0;
    std::string label = {};
    int style = 0;
};

struct Chart {
    std::string title, x_label = "step", y_label;
    bool log_x = false, log_y = false;  // points at or below 0 are left out
    std::vector<Curve> curves;
    std::vector<Mark> marks;
    int width = 760, height = 420;
    double y_low = 0, y_high = 0;       // the y axis; equal: from the curves
};

std::string to_svg(const Chart& chart);
/// One picture, the charts one below the other.
std::string to_svg(const std::vector<Chart>& charts);

/// A series as a curve: smoothed (curve.h) if weight > 0, then thinned.
Curve curve_of(const std::string& name, const Points& points, double smoothing = 0);
/// The mean over seeds with the band from the smallest to the largest, each seed smoothed and the whole thinned.
Curve curve_over_seeds(const std::string& name, const std::vector<const Points*>& seeds, double smoothing = 0);

/// The CSS classes of a line in a style (colour and dashes), and the rules for them: .l is a line, .f filled, .d the faint area of a band.
std::string line_classes(int style);
std::string line_style_sheet();

/// Where an axis from low to high has its ticks, about `count` of them: 1, 2 or 5 times a power of ten.
std::vector<double> linear_ticks(double low, double high, int count);
/// Powers of ten, and what lies between them (1, 2, 5 or 1, 3) where these are few; linear_ticks for less than a decade.
std::vector<double> log_ticks(double low, double high, int count);

}  // namespace clover
