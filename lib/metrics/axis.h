// What both pictures of a chart share: the points that can be shown, the range and the ticks of an
// axis, and smooth lines.
#pragma once
#include <string>
#include <vector>

#include "metrics/chart.h"

namespace neox {

struct Tick {
  double value;
  std::string label;
};

// Maps values to 0..1. A logarithmic axis has positive limits.
struct Axis {
  Scale scale = Scale::kLinear;
  double low = 0, high = 1;
  double position(double value) const;
};

// Round numbers within the axis, about (at least 1) that many. Labels of one axis have one form:
// 0 20k 40k, or 2.50 2.75 3.00.
std::vector<Tick> ticks(const Axis& axis, int about);

// "3.142", "1.2e-05", "143k": four digits for people.
std::string short_number(double value);

// The limits that hold every value with a little room, and that a constant does not collapse.
Axis axis_of(const std::vector<double>& values, Scale scale);

// The series with only the points that the scale can show.
Series showable(const Series& series, Scale scale);

// Centred means over about `window` points. Near the start the window shrinks to both sides, so
// that a steep beginning stays; near the end only to the right, so that the last value is a mean
// too.
std::vector<double> smooth(const std::vector<double>& y, int window);

// The window that makes a noisy series readable; 1 where it is not noisy.
int smoothing_window(const std::vector<double>& y);

// What a chart shows of one series.
struct Curve {
  std::string name;
  Series raw;                // showable points
  std::vector<double> line;  // smooth; equals raw.y where window is 1
  int window = 1;
};

struct Plan {
  std::vector<Curve> curves;  // one for each series of the chart, empty ones too
  Axis x, y;
};

Plan plan_chart(const Chart& chart);

}  // namespace neox
