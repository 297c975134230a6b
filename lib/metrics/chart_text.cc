// The picture of a chart as lines of text.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/terminal.h"
#include "metrics/axis.h"
#include "metrics/chart.h"

namespace neox {
namespace {

constexpr std::array<const char*, 6> kTerminalColours = {"\033[36m", "\033[33m", "\033[35m",
                                                         "\033[32m", "\033[34m", "\033[31m"};
constexpr const char* kPlain = "\033[0m";
constexpr std::array<const char*, 6> kSigns = {"●", "○", "▲", "□", "◆", "+"};
constexpr std::array<const char*, 6> kAsciiSigns = {"*", "+", "o", "x", "#", "@"};

// The dots of a Braille cell, as bits from U+2800 on: [row][column].
constexpr int kBrailleBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

std::string braille(int bits) {
  int code = 0x2800 + bits;
  return {static_cast<char>(0xE2), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

class TextChart {
 public:
  TextChart(const Chart& chart, const TextStyle& style)
      : chart_(chart), plan_(plan_chart(chart)), style_(style) {
    // Without colours, Braille dots of several series could not be told apart.
    dots_ = style.utf8 && (style.colour || plan_.curves.size() <= 1);
    int legend = std::min(static_cast<int>(plan_.curves.size()), std::max(1, style.rows / 3));
    legend_rows_ = static_cast<size_t>(legend);
    rows_ = std::max(3, style.rows - 3 - legend);
    y_ticks_ = ticks(plan_.y, std::max(2, rows_ / 4));
    gutter_ = display_width(chart.x_label);
    for (const Tick& tick : y_ticks_) gutter_ = std::max(gutter_, display_width(tick.label));
    columns_ = std::max(4, style.columns - gutter_ - 2);
    x_ticks_ = ticks(plan_.x, std::max(2, columns_ / 14));
    cells_.resize(static_cast<size_t>(rows_ * columns_));
  }

  std::string draw() {
    for (size_t i = 0; i < plan_.curves.size(); ++i) curve(i);
    std::string out = std::string(static_cast<size_t>(gutter_) + 2, ' ') + printable(chart_.title);
    out = cut_to_width(out, style_.columns) + "\n";
    for (int row = 0; row < rows_; ++row) out += plot_row(row);
    return out + x_axis() + legend();
  }

 private:
  struct Cell {
    int bits = 0;
    int series = -1;
  };

  // Lines between the points, in units of dots.
  void curve(size_t i) {
    const Curve& curve = plan_.curves[i];
    int width = columns_ * dots_x(), height = rows_ * dots_y(), x0 = 0, y0 = 0;
    for (size_t p = 0; p < curve.line.size(); ++p) {
      int x = dot_of(plan_.x.position(curve.raw.x[p]), width);
      int y = height - 1 - dot_of(plan_.y.position(curve.line[p]), height);
      segment(p == 0 ? x : x0, p == 0 ? y : y0, x, y, static_cast<int>(i));
      x0 = x, y0 = y;
    }
  }

  void segment(int x0, int y0, int x1, int y1, int series) {
    int steps = std::max({1, std::abs(x1 - x0), std::abs(y1 - y0)});
    for (int s = 0; s <= steps; ++s)
      set(x0 + static_cast<int>(std::lround(static_cast<double>(x1 - x0) * s / steps)),
          y0 + static_cast<int>(std::lround(static_cast<double>(y1 - y0) * s / steps)), series);
  }

  void set(int x, int y, int series) {
    Cell& cell = cells_[static_cast<size_t>(y / dots_y() * columns_ + x / dots_x())];
    cell.bits |= kBrailleBits[y % dots_y()][x % dots_x()];
    cell.series = series;
  }

  std::string plot_row(int row) const {
    std::string label, edge = style_.utf8 ? "│" : "|";
    for (const Tick& tick : y_ticks_)
      if (rows_ - 1 - dot_of(plan_.y.position(tick.value), rows_) == row)
        label = tick.label, edge = style_.utf8 ? "┤" : "+";
    std::string out(static_cast<size_t>(gutter_ - display_width(label)), ' ');
    out += label + " " + edge;
    int blank = 0, painted = -1;  // spaces at the end of a line are not written
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[static_cast<size_t>(row * columns_ + column)];
      if (cell.series < 0) {
        ++blank;
        continue;
      }
      out += std::string(static_cast<size_t>(blank), ' ');
      if (cell.series != painted) out += colour(painted = cell.series);
      out += dots_ ? braille(cell.bits) : sign(cell.series);
      blank = 0;
    }
    return out + (painted >= 0 ? plain() : "") + "\n";
  }

  std::string x_axis() const {
    std::vector<bool> marks(static_cast<size_t>(columns_), false);
    std::string labels = printable(chart_.x_label);
    labels.insert(0, static_cast<size_t>(gutter_ - display_width(labels)), ' ');
    for (const Tick& tick : x_ticks_) {
      int column = dot_of(plan_.x.position(tick.value), columns_);
      int size = display_width(tick.label), from = gutter_ + 2 + column - size / 2;
      from = std::min(from, style_.columns - size);
      if (from < display_width(labels) + 1) continue;
      labels += std::string(static_cast<size_t>(from - display_width(labels)), ' ') + tick.label;
      marks[static_cast<size_t>(column)] = true;
    }
    std::string line =
        std::string(static_cast<size_t>(gutter_) + 1, ' ') + (style_.utf8 ? "└" : "+");
    for (bool mark : marks) line += style_.utf8 ? (mark ? "┬" : "─") : (mark ? "+" : "-");
    return line + "\n" + cut_to_width(labels, style_.columns) + "\n";
  }

  std::string legend() const {
    std::string out;
    for (size_t i = 0; i < legend_rows_; ++i) {
      const Curve& curve = plan_.curves[i];
      std::string text = " " + printable(curve.name);
      if (curve.window > 1) text += concat(" (mean of ", curve.window, ")");
      text += curve.line.empty() ? ": no points to show" : ": " + short_number(curve.line.back());
      if (i + 1 == legend_rows_ && legend_rows_ < plan_.curves.size())
        text = concat(" and ", plan_.curves.size() - i, " more");
      std::string mark = dots_ ? "──" : sign(static_cast<int>(i));
      int room = style_.columns - gutter_ - 2 - display_width(mark);
      out += std::string(static_cast<size_t>(gutter_) + 2, ' ') + colour(static_cast<int>(i)) +
             mark + plain() + cut_to_width(text, std::max(0, room)) + "\n";
    }
    return out;
  }

  std::string colour(int series) const {
    return style_.colour ? kTerminalColours[static_cast<size_t>(series) % kTerminalColours.size()]
                         : "";
  }
  std::string plain() const { return style_.colour ? kPlain : ""; }
  std::string sign(int series) const {
    return (style_.utf8 ? kSigns : kAsciiSigns)[static_cast<size_t>(series) % kSigns.size()];
  }
  int dots_x() const { return dots_ ? 2 : 1; }
  int dots_y() const { return dots_ ? 4 : 1; }
  static int dot_of(double position, int count) {
    double inside = position > 0 ? std::min(position, 1.0) : 0;
    return static_cast<int>(std::lround(inside * (count - 1)));
  }

  const Chart& chart_;
  const Plan plan_;
  const TextStyle style_;
  bool dots_ = false;
  int rows_ = 0, columns_ = 0, gutter_ = 0;
  size_t legend_rows_ = 0;
  std::vector<Tick> x_ticks_, y_ticks_;
  std::vector<Cell> cells_;  // [rows_, columns_]
};

}  // namespace

std::string draw_text(const Chart& chart, const TextStyle& style) {
  return TextChart(chart, style).draw();
}

}  // namespace neox
