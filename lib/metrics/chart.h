// A chart as data, and its two pictures: an SVG file and lines of text. Points that are not finite
// (and on a logarithmic axis those that are not positive) are left out. Pure functions.
#pragma once
#include <string>
#include <vector>

namespace neox {

struct Series {
  std::string name;
  std::vector<double> x, y;  // of one length; x ascends
};

enum class Scale { kLinear, kLog };

struct Chart {
  std::string title, x_label, y_label = {};
  Scale y_scale = Scale::kLinear;
  std::vector<Series> series = {};
  // Points that one point of the smooth line is the mean of; 1: no smoothing; 0: as each series
  // needs, which for a series without noise is 1.
  int smooth = 0;
};

struct SvgStyle {
  int width = 900, height = 500;  // pixels
};

// A self-contained SVG document. A noisy series is a faint line with its smooth one over it.
std::string draw_svg(const Chart& chart, const SvgStyle& style = {});

struct TextStyle {
  int columns = 80, rows = 20;
  bool utf8 = false;    // Braille dots instead of letters and signs
  bool colour = false;  // ANSI colours
};

// Lines that end in a newline, at most that many columns and rows. Noisy series are shown smooth.
std::string draw_text(const Chart& chart, const TextStyle& style);

}  // namespace neox
