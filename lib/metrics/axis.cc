#include "metrics/axis.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace neox {
namespace {

constexpr double kRoom = 0.03;     // of the range, above and below
constexpr double kNoise = 4;       // a series is noisy that travels so many times its range
constexpr size_t kFewPoints = 30;  // too few to call noise
constexpr int kMaxTicks = 1000;

// The round step whose number of steps comes nearest to what is wanted.
double nice_step(double range, int about) {
  double power = std::pow(10, std::floor(std::log10(range / about)));
  double best = power;
  for (double digit : {2.0, 5.0, 10.0})
    if (std::abs(range / (digit * power) - about) < std::abs(range / best - about))
      best = digit * power;
  return best;
}

// One form for all ticks of an axis: the unit that fits the largest, the digits that fit the step.
std::string tick_label(double value, double largest, double step) {
  static constexpr struct {
    double size;
    const char* name;
  } kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  if (value == 0) return "0";
  // So many that neighbours differ.
  double powers = std::ceil(std::log10(largest / step) - 1e-9);
  int significant = static_cast<int>(std::min(powers, 15.0)) + 1;
  if (largest < 1e-3 || largest >= 1e15) return printed("%.*g", std::max(3, significant), value);
  if (largest >= 10000) {
    for (const auto& unit : kUnits)
      if (largest >= unit.size)
        return printed("%.*g%s", std::max(4, significant), value / unit.size, unit.name);
  }
  int digits = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  return printed("%.*f", digits, value);
}

std::vector<Tick> linear_ticks(const Axis& axis, int about) {
  std::vector<Tick> result;
  double step = nice_step(axis.high - axis.low, about);
  double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  double first = std::ceil(axis.low / step - 1e-9), last = std::floor(axis.high / step + 1e-9);
  if (!(last - first < kMaxTicks)) return result;
  for (double i = first; i <= last; ++i)
    result.push_back({i * step, tick_label(i * step, largest, step)});
  return result;
}

// Powers of ten where enough of them lie within the axis, thinned out where these are many; else
// round numbers between them, too, or linear ones.
std::vector<Tick> log_ticks(const Axis& axis, int about) {
  static const std::vector<double> kDigits[] = {{1, 2, 5}, {1, 1.5, 2, 3, 4, 5, 7}};
  constexpr int kEnough = 4;
  double low = axis.low * (1 - 1e-9), high = axis.high * (1 + 1e-9);
  int first = static_cast<int>(std::ceil(std::log10(low))),
      last = static_cast<int>(std::floor(std::log10(high)));
  std::vector<Tick> result;
  auto add = [&](double value) {
    if (value >= low && value <= high) result.push_back({value, printed("%.4g", value)});
  };
  if (int powers = last - first + 1; powers >= kEnough) {
    for (int power = first; power <= last; power += std::max(1, powers / about))
      add(std::pow(10, power));
    return result;
  }
  for (const std::vector<double>& digits : kDigits) {
    for (int power = first - 1; power <= last; ++power)
      for (double digit : digits) add(digit * std::pow(10, power));
    if (std::ssize(result) >= kEnough) return result;
    result.clear();
  }
  return linear_ticks(axis, about);
}

// Of a window that moves to the right. Nothing is subtracted, or what lies behind an outlier would
// lose its digits: of the older values sums up to the window's middle are kept.
class WindowSum {
 public:
  void push(double value) {
    fresh_.push_back(value);
    sum_of_fresh_ += value;
  }
  void pop() {
    if (older_.empty()) {
      for (double sum = 0; !fresh_.empty(); fresh_.pop_back())
        older_.push_back(sum += fresh_.back());
      sum_of_fresh_ = 0;
    }
    older_.pop_back();
  }
  double sum() const { return sum_of_fresh_ + (older_.empty() ? 0 : older_.back()); }

 private:
  std::vector<double> fresh_, older_;  // older_: sums of the values from each on, the first last
  double sum_of_fresh_ = 0;
};

// Near the start the window shrinks to both sides, near the end only to the right.
std::vector<double> box_filter(const std::vector<double>& y, int half) {
  auto n = static_cast<int64_t>(y.size());
  std::vector<double> mean;
  WindowSum window;
  for (int64_t i = 0, first = 0, end = 0; i < n; ++i) {
    int64_t from = i - std::min<int64_t>(half, i), to = std::min(n, 2 * i - from + 1);
    for (; end < to; ++end) window.push(y[static_cast<size_t>(end)]);
    for (; first < from; ++first) window.pop();
    mean.push_back(window.sum() / static_cast<double>(to - from));
  }
  return mean;
}

}  // namespace

double Axis::position(double value) const {
  if (scale == Scale::kLog)
    return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  // Halves, since the difference of two finite numbers may be infinite.
  return (value / 2 - low / 2) / (high / 2 - low / 2);
}

std::vector<Tick> ticks(const Axis& axis, int about) {
  return axis.scale == Scale::kLog ? log_ticks(axis, about) : linear_ticks(axis, about);
}

std::string short_number(double value) {
  double size = std::abs(value);
  if (size >= 1e4 && size < 1e15) return tick_label(value, size, size);
  return printed("%.4g", value);
}

Axis axis_of(const std::vector<double>& values, Scale scale) {
  Axis axis{.scale = scale, .low = scale == Scale::kLog ? 0.1 : 0, .high = 1};
  if (values.empty()) return axis;
  auto [low, high] = std::minmax_element(values.begin(), values.end());
  axis.low = *low, axis.high = *high;
  if (scale == Scale::kLog) {
    double room = std::max(1.02, std::exp(kRoom * (std::log(axis.high) - std::log(axis.low))));
    axis.low = std::max(axis.low / room, 1e-305), axis.high = std::min(axis.high * room, 1e305);
    return axis;
  }
  double room = kRoom * (axis.high / 2 - axis.low / 2) * 2;
  double least = std::max({std::abs(axis.low), std::abs(axis.high)}) * 1e-9;
  if (room <= least) room = std::max(std::abs(axis.low) * 0.1, axis.low == 0 ? 1.0 : 0.0);
  axis.low = std::max(axis.low - room, -1e300), axis.high = std::min(axis.high + room, 1e300);
  return axis;
}

Series showable(const Series& series, Scale scale) {
  Series shown{.name = series.name, .x = {}, .y = {}};
  for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
    double x = series.x[i], y = series.y[i];
    if (!std::isfinite(x) || !std::isfinite(y) || std::abs(y) > 1e300 || std::abs(x) > 1e300)
      continue;
    if (scale == Scale::kLog && y < 1e-300) continue;
    shown.x.push_back(x), shown.y.push_back(y);
  }
  return shown;
}

std::vector<double> smooth(const std::vector<double>& y, int window) {
  if (window <= 1) return y;
  // Two boxes make a triangle: nearly a bell, without the steps of one box.
  int half = std::max(1, window / 4);
  return box_filter(box_filter(y, half), half);
}

int smoothing_window(const std::vector<double>& y) {
  if (y.size() < kFewPoints) return 1;
  double travel = 0;
  for (size_t i = 1; i < y.size(); ++i) travel += std::abs(y[i] - y[i - 1]);
  auto [low, high] = std::minmax_element(y.begin(), y.end());
  if (travel < kNoise * (*high - *low)) return 1;
  return static_cast<int>(std::clamp<size_t>(y.size() / 25, 5, 1000));
}

Plan plan_chart(const Chart& chart) {
  Plan plan;
  std::vector<double> x, y;
  for (const Series& series : chart.series) {
    Curve curve{.name = series.name, .raw = showable(series, chart.y_scale), .line = {}};
    curve.window = chart.smooth > 0 ? chart.smooth : smoothing_window(curve.raw.y);
    curve.line = smooth(curve.raw.y, curve.window);
    x.insert(x.end(), curve.raw.x.begin(), curve.raw.x.end());
    y.insert(y.end(), curve.raw.y.begin(), curve.raw.y.end());
    plan.curves.push_back(std::move(curve));
  }
  plan.x = axis_of(x, Scale::kLinear);
  if (!x.empty()) {  // time runs from edge to edge
    auto [low, high] = std::minmax_element(x.begin(), x.end());
    if (*low < *high) plan.x.low = *low, plan.x.high = *high;
    if (*low > 0 && *low < 0.05 * *high) plan.x.low = 0;
  }
  plan.y = axis_of(y, chart.y_scale);
  return plan;
}

}  // namespace neox
