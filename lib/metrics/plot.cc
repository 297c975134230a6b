#include "metrics/plot.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/terminal.h"
#include "base/text.h"
#include "metrics/axis.h"

namespace neox {
namespace {

constexpr const char* kTokensTag = "train/tokens";

// What is drawn where no tag is asked for: the first that is there, of GPT-NeoX's, Megatron's and
// others' names of the loss.
constexpr const char* kLossTags[] = {"train/lm_loss", "lm loss", "train/loss", "loss"};
constexpr const char* kValidationTag = "validation/lm_loss";

std::vector<std::string> all_tags(const std::vector<RunLog>& runs) {
  std::set<std::string> tags;
  for (const RunLog& run : runs)
    for (const auto& [tag, points] : run.series) tags.insert(tag);
  return {tags.begin(), tags.end()};
}

std::string shown_list(const std::vector<std::string>& tags) {
  constexpr size_t kMost = 40;
  std::string text;
  for (size_t i = 0; i < std::min(kMost, tags.size()); ++i) text += "\n  " + printable(tags[i]);
  if (tags.size() > kMost) text += concat("\n  and ", tags.size() - kMost, " more (--list)");
  return text;
}

bool has(const std::vector<std::string>& tags, const std::string& tag) {
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

void check_scalars(const std::vector<RunLog>& runs, const std::vector<std::string>& there) {
  check_io(!there.empty(), "no scalars in ", runs.at(0).path.string(),
           runs.size() > 1 ? " and the other runs" : "", "; has the run logged a step yet?");
}

std::vector<std::string> chosen_tags(const std::vector<RunLog>& runs, const PlotRequest& request) {
  std::vector<std::string> there = all_tags(runs);
  check_scalars(runs, there);
  for (const std::string& tag : request.tags) {
    std::string near = nearest(tag, there);
    check_usage(has(there, tag), "no run has a scalar '", tag, "'",
                near.empty() ? "" : "; did you mean '" + near + "'?", near.empty() ? "." : "",
                " There are:", shown_list(there));
  }
  if (!request.tags.empty()) return request.tags;
  for (const char* tag : kLossTags) {
    if (!has(there, tag)) continue;
    if (runs.size() == 1 && has(there, kValidationTag)) return {tag, kValidationTag};
    return {tag};
  }
  fail(Exit::kUsage, "no run has a scalar '", kLossTags[0],
       "'; choose one with --tag:", shown_list(there));
}

// Seconds, minutes, hours or days, whichever reads best for the longest run.
struct TimeUnit {
  const char* label;
  double seconds;
};

TimeUnit time_unit(double longest) {
  if (longest < 300) return {"time (s)", 1};
  if (longest < 3 * 3600) return {"time (min)", 60};
  if (longest < 72 * 3600) return {"time (h)", 3600};
  return {"time (days)", 86400};
}

double start_of(const RunLog& run) {
  double start = 0;
  for (const auto& [tag, points] : run.series)
    for (const Point& point : points)
      if (start == 0 || point.time < start) start = point.time;
  return start;
}

// Tokens seen at each point's step: those of the last step that says so.
std::vector<double> tokens_at(const RunLog& run, const std::vector<Point>& points) {
  auto tokens = run.series.find(kTokensTag);
  check_usage(tokens != run.series.end(), run.path.string(),
              " does not say how many tokens it has "
              "seen (no scalar '",
              kTokensTag, "'); use --x step");
  std::vector<double> x;
  for (const Point& point : points) {
    auto after = std::upper_bound(tokens->second.begin(), tokens->second.end(), point.step,
                                  [](int64_t step, const Point& p) { return step < p.step; });
    x.push_back(after == tokens->second.begin() ? 0 : std::prev(after)->value);
  }
  return x;
}

std::vector<double> x_of(const RunLog& run, const std::vector<Point>& points, XAxis axis) {
  if (axis == XAxis::kTokens) return tokens_at(run, points);
  std::vector<double> x;
  double start = axis == XAxis::kTime ? start_of(run) : 0;
  for (const Point& point : points)
    x.push_back(axis == XAxis::kTime ? point.time - start : static_cast<double>(point.step));
  return x;
}

std::string x_label(Chart& chart, XAxis axis) {
  if (axis == XAxis::kStep) return "step";
  if (axis == XAxis::kTokens) return "tokens";
  double longest = 0;
  for (const Series& series : chart.series)
    if (!series.x.empty()) longest = std::max(longest, series.x.back());
  TimeUnit unit = time_unit(longest);
  for (Series& series : chart.series)
    for (double& x : series.x) x /= unit.seconds;
  return unit.label;
}

}  // namespace

XAxis parse_x_axis(const std::string& name) {
  if (name == "step") return XAxis::kStep;
  if (name == "time") return XAxis::kTime;
  if (name == "tokens") return XAxis::kTokens;
  fail(Exit::kUsage, "--x is '", name, "'; it can be step, time or tokens");
}

// "nan or infinite at 51 of 100 points, the last one too", and on a logarithmic axis also "not
// positive at 3 of 100 points"; "" where it is nowhere.
std::string hidden_points(const std::vector<double>& y, Scale scale) {
  auto is_none = [](double value) { return !std::isfinite(value); };
  auto is_below = [&](double value) {
    return scale == Scale::kLog && !is_none(value) && value <= 0;
  };
  std::vector<std::string> parts;
  auto add = [&](const char* what, auto is) {
    if (auto count = std::ranges::count_if(y, is); count > 0)
      parts.push_back(concat(what, " at ", count, " of ", y.size(), " points",
                             is(y.back()) ? ", the last one too" : ""));
  };
  add("nan or infinite", is_none);
  add("not positive", is_below);
  return join(parts, ", ");
}

Chart chart_of(const std::vector<RunLog>& runs, const PlotRequest& request) {
  std::vector<std::string> tags = chosen_tags(runs, request);
  Chart chart{.title = join(tags, ", "), .x_label = "", .y_scale = request.y_scale};
  chart.smooth = request.smooth;
  for (const RunLog& run : runs)
    for (const std::string& tag : tags) {
      auto found = run.series.find(tag);
      if (found == run.series.end()) {
        log_warning(run.path.string(), " has no scalar '", printable(tag), "'");
        continue;
      }
      std::string name = tags.size() == 1   ? run.name
                         : runs.size() == 1 ? tag
                                            : run.name + " " + tag;
      Series series{.name = name, .x = x_of(run, found->second, request.x), .y = {}};
      for (const Point& point : found->second) series.y.push_back(point.value);
      if (std::string hidden = hidden_points(series.y, request.y_scale); !hidden.empty()) {
        series.name += concat(" (", hidden, ")");
        log_warning(run.path.string(), ": ", printable(tag), " is ", hidden,
                    ", and not drawn there");
      }
      chart.series.push_back(std::move(series));
    }
  chart.x_label = x_label(chart, request.x);
  if (runs.size() == 1 && tags.size() > 1) chart.title = runs[0].name;
  return chart;
}

std::string plot(const std::vector<RunLog>& runs, const PlotRequest& request,
                 const Terminal& terminal) {
  bool to_file = !request.out.empty();
  check_usage(!to_file || request.out.extension() == ".svg", "--out ", request.out.string(),
              ": neox-plot writes SVG; give a name that ends in .svg (rsvg-convert makes a PNG of "
              "it)");
  check_usage(request.smooth >= 0, "--smooth is ", request.smooth,
              "; it counts points: 1 is no smoothing");
  int least = to_file ? 200 : 10, most = to_file ? 10000 : 1000;
  for (auto [option, size, cells] : {std::tuple{"--width", request.width, " columns"},
                                     std::tuple{"--height", request.height, " rows"}})
    check_usage(size == 0 || (size >= least && size <= most), option, " is ", size,
                to_file ? " pixels" : cells, "; it can be ", least, " to ", most);
  Chart chart = chart_of(runs, request);
  if (to_file) {
    SvgStyle style;
    if (request.width) style.width = request.width;
    if (request.height) style.height = request.height;
    make_directories(directory_of(request.out));
    write_file_atomically(request.out, draw_svg(chart, style));
    return "wrote " + request.out.string() + "\n";
  }
  TextStyle style{.columns = std::min(terminal.columns, 100), .rows = 20};
  if (request.width) style.columns = request.width;
  if (request.height) style.rows = request.height;
  style.utf8 = terminal.utf8 && !request.ascii_only;
  style.colour = terminal.colour;
  return draw_text(chart, style);
}

std::string list_scalars(const std::vector<RunLog>& runs) {
  check_scalars(runs, all_tags(runs));
  std::string out;
  for (const RunLog& run : runs) {
    size_t widest = 3;
    for (const auto& [tag, points] : run.series) widest = std::max(widest, printable(tag).size());
    out += (out.empty() ? "" : "\n") + printable(run.path.string()) + "\n";
    auto row = [&](const std::string& tag, const std::string& line) {
      out += "  " + tag + std::string(widest + 2 - std::min(widest, tag.size()), ' ') + line;
    };
    row("tag", printed("%8s  %10s  %10s  %s\n", "points", "first step", "last step", "last value"));
    for (const auto& [tag, points] : run.series)
      row(printable(tag), printed("%8zu  %10" PRId64 "  %10" PRId64 "  %.7g\n", points.size(),
                                  points.front().step, points.back().step, points.back().value));
  }
  return out;
}

}  // namespace neox
