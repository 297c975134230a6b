// What neox-plot does: scalars of runs as one chart, in a file or in the terminal, or as a list.
#pragma once
#include <string>
#include <vector>

#include "base/terminal.h"
#include "metrics/chart.h"
#include "metrics/run.h"

namespace neox {

enum class XAxis { kStep, kTime, kTokens };

struct PlotRequest {
  std::vector<std::string> tags = {};  // none: the loss; of a single run that of validation too
  XAxis x = XAxis::kStep;
  Scale y_scale = Scale::kLinear;
  int smooth = 0;     // as in Chart
  fs::path out = {};  // an .svg file; empty: text
  int width = 0;      // pixels or columns; 0: 900, or the terminal's
  int height = 0;     // pixels or rows; 0: 500, or 20
  bool ascii_only = false;
};

// "step", "time" or "tokens". Throws (exit code 64) for anything else.
XAxis parse_x_axis(const std::string& name);

// The chart of these tags of these runs. A tag that no run has is an error (exit code 64) that
// lists those that are there; a run that lacks one of several tags is left out with a warning.
Chart chart_of(const std::vector<RunLog>& runs, const PlotRequest& request);

// Writes the file, or draws for the terminal; returns what is to be printed.
std::string plot(const std::vector<RunLog>& runs, const PlotRequest& request,
                 const Terminal& terminal);

// A table of the tags of each run: points, first and last step, last value.
std::string list_scalars(const std::vector<RunLog>& runs);

}  // namespace neox
