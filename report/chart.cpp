#include "chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "../kernels/error.h"
#include "curve.h"
#include "escape.h"

namespace clover {
namespace {

constexpr int64_t most_points = 800;  // about one a pixel

// prefers-color-scheme holds inside of an <img> too, and the picture paints its own background, so that it can be read whatever the page around it has.
const char* const style_sheet =
    "text{font:12px system-ui,sans-serif;fill:#333}.t{font-size:14px;font-weight:600}.b{fill:#fff}.g{stroke:#ddd}.a{stroke:#888}"
    "@media screen and (prefers-color-scheme:dark){text{fill:#ccc}.b{fill:#0d1117}.g{stroke:#30363d}.a{stroke:#777}}";

struct Colour {
    const char *light, *dark;
};
constexpr Colour colours[] = {{"#0072b2", "#58a6e6"}, {"#d55e00", "#ff8a4c"}, {"#009e73", "#2cc295"}, {"#b0478a", "#e59ac9"},
                              {"#b87a00", "#f2b632"}, {"#3a9fdc", "#a5d8ff"}, {"#444444", "#bbbbbb"}};

std::string fixed(double x) {
    char buffer[400];
    std::snprintf(buffer, sizeof buffer, "%.1f", x);
    return buffer;
}

std::string tick_text(double x) {
    char buffer[64];
    const double a = std::fabs(x);
    const auto with_unit = [&](double unit, const char* name) { std::snprintf(buffer, sizeof buffer, "%.4g%s", x / unit, name); };
    if (a >= 1e12 || (a < 1e-3 && a > 0)) std::snprintf(buffer, sizeof buffer, "%.3g", x);
    else if (a >= 1e9) with_unit(1e9, "G");
    else if (a >= 1e6) with_unit(1e6, "M");
    else if (a >= 1e4) with_unit(1e3, "k");
    else with_unit(1, "");
    return buffer;
}

struct Axis {
    double low = std::numeric_limits<double>::infinity(), high = -low, from = 0, to = 1;  // values, and where they lie in the picture
    bool log = false;

    bool holds(double v) const { return std::isfinite(v) && (!log || v > 0); }
    void include(double v) {
        if (holds(v)) low = std::min(low, v), high = std::max(high, v);
    }
    /// With a margin, and never empty.
    void finish(double margin) {
        if (low > high) low = log ? 1 : 0, high = log ? 10 : 1;
        if (log) {
            const double factor = low == high ? 1.1 : std::pow(high / low, margin);
            low /= factor, high *= factor;
        } else {
            const double more = low == high ? std::max(std::fabs(low) * 0.1, 1e-12) : (high - low) * margin;
            low -= more, high += more;
        }
    }
    double place(double v) const {
        const double share = log ? std::log(v / low) / std::log(high / low) : (v - low) / (high - low);
        return from + share * (to - from);
    }
    std::vector<double> ticks(int count) const { return log ? log_ticks(low, high, count) : linear_ticks(low, high, count); }
};

struct LegendPlace {
    double x, y;
    int curve;
};

/// Names in rows from the left; their width is estimated.
std::vector<LegendPlace> legend_places(const Chart& c, double left, double top, double& bottom) {
    std::vector<LegendPlace> places;
    double x = left, y = top;
    for (size_t i = 0; i < c.curves.size(); i++) {
        if (c.curves[i].name.empty()) continue;
        const double width = 34 + 6.8 * double(c.curves[i].name.size());
        if (x > left && x + width > c.width - 10) x = left, y += 18;
        places.push_back({x, y, int(i)});
        x += width + 10;
    }
    bottom = places.empty() ? top - 10 : y + 10;
    return places;
}

int style_of(const Chart& c, int curve) { return c.curves[size_t(curve)].style >= 0 ? c.curves[size_t(curve)].style : curve; }

std::string line_path(const Curve& c, const Axis& x, const Axis& y) {
    std::string d;
    bool down = false;
    for (size_t i = 0; i < c.x.size(); i++) {
        const bool drawn = x.holds(c.x[i]) && y.holds(c.y[i]);
        if (drawn) d += text(down ? "L" : "M", fixed(x.place(c.x[i])), " ", fixed(y.place(c.y[i])));
        down = drawn;
    }
    return d;
}

/// One polygon for each stretch without a gap: there along the top, back along the bottom.
std::string band_path(const Curve& c, const Axis& x, const Axis& y) {
    std::string d, back;
    const auto close = [&] { d += back.empty() ? "" : back + "Z", back.clear(); };
    for (size_t i = 0; i < c.low.size(); i++) {
        if (!x.holds(c.x[i]) || !y.holds(c.low[i]) || !y.holds(c.high[i])) {
            close();
            continue;
        }
        const std::string at = fixed(x.place(c.x[i])) + " ";
        d += text(back.empty() ? "M" : "L", at, fixed(y.place(c.high[i])));
        back = text("L", at, fixed(y.place(c.low[i])), back);
    }
    close();
    return d;
}

std::string draw_curve(const Chart& c, int curve, const Axis& x, const Axis& y) {
    const Curve& line = c.curves[size_t(curve)];
    const std::string classes = line_classes(style_of(c, curve));
    std::string svg;
    if (!line.low.empty()) svg += "<path class=\"f d " + classes + "\" d=\"" + band_path(line, x, y) + "\"/>\n";
    svg += "<path class=\"l " + classes + "\" d=\"" + line_path(line, x, y) + "\"/>\n";
    for (size_t i = 0; line.points && i < line.x.size(); i++)
        if (x.holds(line.x[i]) && y.holds(line.y[i])) svg += text("<circle class=\"f ", classes, "\" cx=\"", fixed(x.place(line.x[i])), "\" cy=\"", fixed(y.place(line.y[i])), "\" r=\"3\"/>\n");
    return svg;
}

std::string draw_axes(const Chart& c, const Axis& x, const Axis& y) {
    std::string svg;
    const std::string left = fixed(x.from), right = fixed(x.to), bottom = fixed(y.from);
    for (const double v : y.ticks(6)) {
        const std::string at = fixed(y.place(v));
        svg += "<path class=\"g\" d=\"M" + left + " " + at + "H" + right + "\"/><text x=\"" + fixed(x.from - 6) + "\" y=\"" + fixed(y.place(v) + 4) + "\" text-anchor=\"end\">" + tick_text(v) + "</text>\n";
    }
    for (const double v : x.ticks(8)) {
        const std::string at = fixed(x.place(v));
        svg += "<path class=\"a\" d=\"M" + at + " " + bottom + "v4\"/><text x=\"" + at + "\" y=\"" + fixed(y.from + 18) + "\" text-anchor=\"middle\">" + tick_text(v) + "</text>\n";
    }
    svg += "<path class=\"a\" d=\"M" + left + " " + bottom + "H" + right + "\"/>\n";
    svg += "<text x=\"" + fixed((x.from + x.to) / 2) + "\" y=\"" + fixed(y.from + 36) + "\" text-anchor=\"middle\">" + escape_xml(c.x_label) + "</text>\n";
    return svg;
}

void find_ranges(const Chart& c, Axis& x, Axis& y) {
    for (const Curve& curve : c.curves) {
        CLOVER_CHECK(curve.x.size() == curve.y.size() && curve.low.size() == curve.high.size() && (curve.low.empty() || curve.low.size() == curve.x.size()));
        for (size_t i = 0; i < curve.x.size(); i++)
            if (x.holds(curve.x[i]) && y.holds(curve.y[i])) x.include(curve.x[i]), y.include(curve.y[i]);
        for (size_t i = 0; i < curve.low.size(); i++) y.include(curve.low[i]), y.include(curve.high[i]);
    }
    for (const Mark& m : c.marks) y.include(m.y);
    x.finish(0.01);
    y.finish(0.04);
    if (c.y_low != c.y_high) y.low = c.y_low, y.high = c.y_high;
}

/// The chart's elements, moved down by `top`.
std::string draw_chart(const Chart& c, int top) {
    double head = 0;
    const std::vector<LegendPlace> legend = legend_places(c, 62, 46, head);
    Axis x{.from = 62, .to = double(c.width) - 14, .log = c.log_x}, y{.from = double(c.height) - 46, .to = head + 8, .log = c.log_y};
    find_ranges(c, x, y);
    std::string svg = text("<g transform=\"translate(0 ", top, ")\">\n<text class=\"t\" x=\"12\" y=\"22\">", escape_xml(c.title), "</text>");
    svg += text("<text x=\"", c.width - 14, "\" y=\"22\" text-anchor=\"end\">", escape_xml(c.y_label + (c.log_y ? ", logarithmic" : "")), "</text>\n");
    for (const LegendPlace& p : legend) {
        svg += "<path class=\"l " + line_classes(style_of(c, p.curve)) + "\" d=\"M" + fixed(p.x) + " " + fixed(p.y - 4) + "h24\"/>";
        svg += "<text x=\"" + fixed(p.x + 30) + "\" y=\"" + fixed(p.y) + "\">" + escape_xml(c.curves[size_t(p.curve)].name) + "</text>\n";
    }
    svg += draw_axes(c, x, y);
    for (size_t i = 0; i < c.curves.size(); i++) svg += draw_curve(c, int(i), x, y);
    for (const Mark& m : c.marks)
        if (x.holds(m.x) && y.holds(m.y))
            svg += text("<path class=\"f ", line_classes(m.style), "\" d=\"M", fixed(x.place(m.x)), " ", fixed(y.place(m.y) - 3), "l-4 -8h8Z\"><title>", escape_xml(m.label), "</title></path>\n");
    return svg + "</g>\n";
}

}  // namespace

std::string line_classes(int style) {
    const int dashes = style / int(std::size(colours)) % 4;
    return text("c", style % int(std::size(colours)), dashes ? text(" h", dashes) : "");
}

std::string line_style_sheet() {
    std::string light, dark;
    for (size_t i = 0; i < std::size(colours); i++) {
        light += text(".c", i, "{stroke:", colours[i].light, ";color:", colours[i].light, "}");
        dark += text(".c", i, "{stroke:", colours[i].dark, ";color:", colours[i].dark, "}");
    }
    return light + "@media screen and (prefers-color-scheme:dark){" + dark +
           "}.l{fill:none;stroke-width:1.6;stroke-linejoin:round}.d{opacity:.18}.f{fill:currentColor;stroke:none}"
           ".h1{stroke-dasharray:6 3}.h2{stroke-dasharray:2 2}.h3{stroke-dasharray:8 3 2 3}";
}

std::vector<double> linear_ticks(double low, double high, int count) {
    if (!(high > low)) return {low};
    const double rough = (high - low) / count, power = std::pow(10, std::floor(std::log10(rough)));
    const double step = power * (rough / power > 5.01 ? 10 : rough / power > 2.01 ? 5 : rough / power > 1.01 ? 2 : 1);
    std::vector<double> ticks;
    for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && ticks.size() < 100; k++) ticks.push_back(k * step + 0.0);  // not -0
    return ticks;
}

std::vector<double> log_ticks(double low, double high, int count) {
    const double decades = std::log10(high / low);
    if (!(decades >= 1)) return linear_ticks(low, high, count);
    const int stride = std::max(1, int(std::ceil(decades / count)));
    const std::vector<double> within = decades < 2 ? std::vector<double>{1, 2, 5} : decades <= count / 2.0 ? std::vector<double>{1, 3} : std::vector<double>{1};
    std::vector<double> ticks;
    for (int k = int(std::floor(std::log10(low))); k <= int(std::ceil(std::log10(high))); k++)
        for (const double m : within)
            if (const double v = m * std::pow(10, k); k % stride == 0 && v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9)) ticks.push_back(v);
    return ticks;
}

Curve curve_of(const std::string& name, const Points& points, double smoothing) {
    Curve curve;
    curve.name = name;
    for (const Point& p : thinned(smoothed(points, smoothing), most_points)) curve.x.push_back(double(p.step)), curve.y.push_back(p.value);
    return curve;
}

Curve curve_over_seeds(const std::string& name, const std::vector<const Points*>& seeds, double smoothing) {
    std::vector<Points> smooth;
    for (const Points* p : seeds) smooth.push_back(smoothed(*p, smoothing));
    std::vector<const Points*> pointers;
    for (const Points& p : smooth) pointers.push_back(&p);
    const Band band = band_over(pointers);
    Curve curve;
    curve.name = name;
    const size_t n = band.x.size(), every = n / size_t(most_points) + 1;
    for (size_t i = 0; i < n; i++) {
        if (i % every != 0 && i + 1 != n) {  // a point left out still widens the band
            curve.low.back() = std::min(curve.low.back(), band.low[i]), curve.high.back() = std::max(curve.high.back(), band.high[i]);
            continue;
        }
        curve.x.push_back(band.x[i]), curve.y.push_back(band.mean[i]);
        curve.low.push_back(band.low[i]), curve.high.push_back(band.high[i]);
    }
    return curve;
}

std::string to_svg(const std::vector<Chart>& charts) {
    int width = 0, height = 0;
    for (const Chart& c : charts) width = std::max(width, c.width), height += c.height;
    std::string svg = text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height, "\" viewBox=\"0 0 ", width, " ", height, "\" role=\"img\">\n", "<style>", style_sheet, line_style_sheet(),
                           "</style>\n<rect class=\"b\" width=\"", width, "\" height=\"", height, "\"/>\n");
    int top = 0;
    for (const Chart& c : charts) {
        svg += draw_chart(c, top);
        top += c.height;
    }
    return svg + "</svg>\n";
}

std::string to_svg(const Chart& chart) { return to_svg(std::vector<Chart>{chart}); }

}  // namespace clover
