// The picture of a chart as SVG.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/terminal.h"
#include "base/text.h"
#include "metrics/axis.h"
#include "metrics/chart.h"

namespace neox {
namespace {

// Okabe and Ito's colours, which people with any colour vision tell apart, darkened where they are
// too light for lines on white. More series take them again with broken lines.
constexpr std::array<const char*, 7> kSvgColours = {"#0072b2", "#d55e00", "#009e73", "#b4559a",
                                                    "#c98a00", "#3ba3dd", "#444444"};
constexpr std::array<const char*, 4> kDashes = {"", "7 3", "2 2", "9 3 2 3"};

// Bold digits are wider than the mean character.
constexpr double kFont = 12, kCharacter = 6.9, kBoldDigit = 8.6, kSwatch = 20, kLegendRow = 18;
constexpr double kBeforeLast = 6;  // pixels between the end of a curve and its last value
constexpr int kMaxLegendRows = 4;
constexpr size_t kMaxLastValues = 12;

std::string number(double value) {
  std::string digits = printed("%.1f", value);
  return digits.ends_with(".0") ? digits.substr(0, digits.size() - 2) : digits;
}

std::string escaped(const std::string& text) {
  std::string xml, shown = printable(text);
  // XML has no place for these two characters (XML 1.0, 2.2).
  for (const char* none : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"})
    shown = replace_all(shown, none, "\xEF\xBF\xBD");
  for (char c : shown) {
    if (c == '&') {
      xml += "&amp;";
    } else if (c == '<') {
      xml += "&lt;";
    } else if (c == '>') {
      xml += "&gt;";
    } else if (c == '"') {
      xml += "&quot;";
    } else {
      xml += c;
    }
  }
  return xml;
}

double text_width(const std::string& text) { return kCharacter * display_width(text); }

class SvgChart {
 public:
  SvgChart(const Chart& chart, const SvgStyle& style)
      : chart_(chart), plan_(plan_chart(chart)), width_(style.width), height_(style.height) {}

  std::string draw() {
    place();
    open();
    legend();
    grid();
    for (size_t i = 0; i < plan_.curves.size(); ++i) curve(i);
    last_values();
    return out_ + "</svg>\n";
  }

 private:
  struct LegendItem {
    size_t series;
    std::string text;
    double x;
    int row;
  };

  // Where the plot is, from the room that the texts around it need.
  void place() {
    y_ticks_ = ticks(plan_.y, std::max(2, height_ / 70));
    double widest = 20;
    for (const Tick& tick : y_ticks_) widest = std::max(widest, text_width(tick.label));
    left_ = widest + 22;
    right_ = width_ - last_values_width();
    arrange_legend();
    top_ = 46 + kLegendRow * legend_rows_ + (chart_.y_label.empty() ? 0 : 16);
    bottom_ = height_ - 50;
    x_ticks_ = ticks(plan_.x, std::max(2, static_cast<int>((right_ - left_) / 100)));
  }

  // Beside the plot: what the widest last value takes, and at least what a label of x may.
  double last_values_width() const {
    double widest = 64;
    for (size_t i = 0; i < plan_.curves.size() && i < kMaxLastValues; ++i)
      if (const auto& line = plan_.curves[i].line; !line.empty())
        widest = std::max(widest,
                          kBeforeLast + kBoldDigit * display_width(short_number(line.back())) + 4);
    return widest;
  }

  void arrange_legend() {
    double x = left_;
    for (size_t i = 0; i < plan_.curves.size(); ++i) {
      const Curve& curve = plan_.curves[i];
      std::string text = cut_to_width(printable(curve.name), 100);
      if (curve.window > 1) text += concat(" (mean of ", curve.window, ")");
      double item_width = kSwatch + 6 + text_width(text) + 22;
      if (legend_rows_ == 0) legend_rows_ = 1;
      if (x > left_ && x + item_width > width_ - 10) x = left_, ++legend_rows_;
      if (legend_rows_ > kMaxLegendRows) break;
      legend_.push_back({i, text, x, legend_rows_ - 1});
      x += item_width;
    }
    legend_rows_ = std::min(legend_rows_, kMaxLegendRows);
  }

  void open() {
    out_ = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width_, "\" height=\"",
                  height_, "\" viewBox=\"0 0 ", width_, " ", height_,
                  "\" font-family=\"'DejaVu Sans', Verdana, Arial, sans-serif\" font-size=\"",
                  kFont, "\">\n<title>", escaped(chart_.title), "</title>\n<rect width=\"", width_,
                  "\" height=\"", height_, "\" fill=\"#ffffff\"/>\n");
    text(left_, 27, chart_.title, "fill=\"#111111\" font-size=\"16\" font-weight=\"bold\"");
    if (!chart_.y_label.empty()) text(left_ - 8, top_ - 10, chart_.y_label, "fill=\"#555555\"");
    text((left_ + right_) / 2, height_ - 12, chart_.x_label,
         "fill=\"#555555\" text-anchor=\"middle\"");
  }

  void legend() {
    for (const LegendItem& item : legend_) {
      double y = 46 + kLegendRow * item.row;
      line(item.x, y, item.x + kSwatch, y, stroke(item.series) + " stroke-width=\"2.5\"");
      text(item.x + kSwatch + 6, y + 4, item.text, "fill=\"#222222\"");
    }
    if (legend_.size() < plan_.curves.size())
      text(right_, 27, concat("and ", plan_.curves.size() - legend_.size(), " more"),
           "fill=\"#555555\" text-anchor=\"end\"");
  }

  void grid() {
    for (const Tick& tick : y_ticks_) {
      double y = y_of(tick.value);
      line(left_, y, right_, y, "stroke=\"#e3e3e3\"");
      text(left_ - 8, y + 4, tick.label, "fill=\"#444444\" text-anchor=\"end\"");
    }
    for (const Tick& tick : x_ticks_) {
      double x = x_of(tick.value);
      line(x, top_, x, bottom_, "stroke=\"#f0f0f0\"");
      line(x, bottom_, x, bottom_ + 5, "stroke=\"#888888\"");
      text(x, bottom_ + 19, tick.label, "fill=\"#444444\" text-anchor=\"middle\"");
    }
    line(left_, bottom_, right_, bottom_, "stroke=\"#888888\"");
    if (y_ticks_.empty() || empty())
      text((left_ + right_) / 2, (top_ + bottom_) / 2, "no points to show",
           "fill=\"#888888\" text-anchor=\"middle\"");
  }

  bool empty() const {
    return std::all_of(plan_.curves.begin(), plan_.curves.end(),
                       [](const Curve& curve) { return curve.raw.y.empty(); });
  }

  void curve(size_t i) {
    const Curve& curve = plan_.curves[i];
    if (curve.raw.y.size() == 1) {
      dot(curve.raw.x[0], curve.raw.y[0], i);
      return;
    }
    if (curve.window > 1)
      path(curve.raw.x, curve.raw.y, concat(stroke(i), " stroke-width=\"1\" opacity=\"0.28\""));
    path(curve.raw.x, curve.line, stroke(i) + " stroke-width=\"2\"");
    // So few that each may be looked at.
    if (curve.raw.y.size() <= 25)
      for (size_t j = 0; j < curve.raw.y.size(); ++j) dot(curve.raw.x[j], curve.line[j], i);
  }

  // Each curve's last value at its end, moved apart where they would overlap.
  void last_values() {
    struct Label {
      double y, x;
      size_t series;
      std::string text;
    };
    std::vector<Label> labels;
    for (size_t i = 0; i < plan_.curves.size() && i < kMaxLastValues; ++i) {
      const Curve& curve = plan_.curves[i];
      if (!curve.line.empty())
        labels.push_back({y_of(curve.line.back()), x_of(curve.raw.x.back()), i,
                          short_number(curve.line.back())});
    }
    std::sort(labels.begin(), labels.end(),
              [](const Label& a, const Label& b) { return a.y < b.y; });
    for (size_t i = 1; i < labels.size(); ++i)
      labels[i].y = std::max(labels[i].y, labels[i - 1].y + kFont + 2);
    double lowest = bottom_;
    for (size_t i = labels.size(); i-- > 0; lowest = labels[i].y - kFont - 2)
      labels[i].y = std::min(labels[i].y, lowest);
    // The outline is a text of its own, since not everything that shows SVG knows paint-order.
    for (const Label& label : labels) {
      double x = label.x + kBeforeLast, y = label.y + 4;
      text(x, y, label.text,
           "fill=\"#ffffff\" font-weight=\"bold\" stroke=\"#ffffff\" stroke-width=\"3\" "
           "aria-hidden=\"true\"");
      text(x, y, label.text, concat("fill=\"", colour(label.series), "\" font-weight=\"bold\""));
    }
  }

  // A path with at most four points for each pixel column: the first, the extremes, the last.
  void path(const std::vector<double>& x, const std::vector<double>& y, const std::string& look) {
    std::string data;
    auto point = [&](size_t i) {
      data += (data.empty() ? "M" : "L") + number(x_of(x[i])) + " " + number(y_of(y[i]));
    };
    for (size_t from = 0; from < x.size();) {
      size_t to = from, low = from, high = from;
      for (; to < x.size() && std::floor(x_of(x[to])) == std::floor(x_of(x[from])); ++to) {
        if (y[to] < y[low]) low = to;
        if (y[to] > y[high]) high = to;
      }
      size_t previous = x.size();
      for (size_t i : {from, std::min(low, high), std::max(low, high), to - 1})
        if (i != previous) point(previous = i);
      from = to;
    }
    if (!data.empty())
      out_ +=
          concat("<path d=\"", data, "\" fill=\"none\" stroke-linejoin=\"round\" ", look, "/>\n");
  }

  void dot(double x, double y, size_t series) {
    out_ += concat("<circle cx=\"", number(x_of(x)), "\" cy=\"", number(y_of(y)),
                   "\" r=\"3\" fill=\"", colour(series), "\"/>\n");
  }

  void line(double x1, double y1, double x2, double y2, const std::string& look) {
    out_ += concat("<line x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"", number(x2),
                   "\" y2=\"", number(y2), "\" ", look, "/>\n");
  }

  void text(double x, double y, const std::string& words, const std::string& look) {
    out_ += concat("<text x=\"", number(x), "\" y=\"", number(y), "\" ", look, ">", escaped(words),
                   "</text>\n");
  }

  static const char* colour(size_t series) { return kSvgColours[series % kSvgColours.size()]; }
  static std::string stroke(size_t series) {
    std::string dash = kDashes[series / kSvgColours.size() % kDashes.size()];
    return concat("stroke=\"", colour(series), "\"",
                  dash.empty() ? "" : " stroke-dasharray=\"" + dash + "\"");
  }

  double x_of(double value) const { return left_ + fraction(plan_.x, value) * (right_ - left_); }
  double y_of(double value) const { return bottom_ - fraction(plan_.y, value) * (bottom_ - top_); }
  static double fraction(const Axis& axis, double value) {
    double position = axis.position(value);
    return position > 0 ? std::min(position, 1.0) : 0;
  }

  const Chart& chart_;
  const Plan plan_;
  const int width_, height_;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
  std::vector<Tick> x_ticks_, y_ticks_;
  std::vector<LegendItem> legend_;
  int legend_rows_ = 0;
  std::string out_;
};

}  // namespace

std::string draw_svg(const Chart& chart, const SvgStyle& style) {
  return SvgChart(chart, style).draw();
}

}  // namespace neox
