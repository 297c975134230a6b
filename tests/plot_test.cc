#include "metrics/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "data_files.h"
#include "metrics/axis.h"
#include "metrics/metrics.h"

namespace neox {
namespace {

std::string labels(const Axis& axis, int about) {
  std::string text;
  for (const Tick& tick : ticks(axis, about)) text += (text.empty() ? "" : " ") + tick.label;
  return text;
}

RunLog run_of(const std::string& name, const std::map<std::string, std::vector<Point>>& series) {
  return {.name = name, .path = name, .series = series, .warnings = {}};
}

// What an error says; "" where there is none.
std::string usage_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::kUsage);
    return e.what();
  }
  return "";
}

TEST(Ticks, AreRoundNumbersInOneForm) {
  EXPECT_EQ(labels({.low = 0, .high = 1000}, 5), "0 200 400 600 800 1000");
  EXPECT_EQ(labels({.low = 2.4, .high = 3.1}, 4), "2.4 2.6 2.8 3.0");
  EXPECT_EQ(labels({.low = 0, .high = 143000}, 7), "0 20k 40k 60k 80k 100k 120k 140k");
  EXPECT_EQ(labels({.low = 0, .high = 3e9}, 3), "0 1G 2G 3G");
  EXPECT_EQ(labels({.low = 0, .high = 6e-4}, 3), "0 0.0002 0.0004 0.0006");
  EXPECT_EQ(labels({.low = -1, .high = 1}, 4), "-1.0 -0.5 0 0.5 1.0");
  EXPECT_EQ(labels({.low = 143000, .high = 143100}, 3), "143k 143.05k 143.1k") << "not one twice";
  EXPECT_EQ(labels({.low = 1e6, .high = 1e6 + 2}, 2), "1M 1.000001M 1.000002M");
  EXPECT_EQ(labels({.low = 5.99e-4, .high = 6e-4}, 2), "0.000599 0.0005995 0.0006");
}

TEST(Ticks, OfALogarithmicAxisArePowersOrRoundNumbersBetween) {
  EXPECT_EQ(labels({.scale = Scale::kLog, .low = 1e-3, .high = 1e3}, 7),
            "0.001 0.01 0.1 1 10 100 1000");
  EXPECT_EQ(labels({.scale = Scale::kLog, .low = 3, .high = 4e5}, 2), "10 1000 1e+05");
  EXPECT_EQ(labels({.scale = Scale::kLog, .low = 3, .high = 400}, 3), "5 10 20 50 100 200");
  EXPECT_EQ(labels({.scale = Scale::kLog, .low = 1.9, .high = 11}, 5), "2 3 4 5 7 10");
  EXPECT_EQ(labels({.scale = Scale::kLog, .low = 3.1, .high = 3.4}, 3), "3.1 3.2 3.3 3.4");
}

TEST(Axis, HoldsEveryRangeOfFiniteNumbers) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> exponent(-300, 300), sign(-1, 1);
  for (int i = 0; i < 5000; ++i) {
    double a = std::copysign(std::pow(10, exponent(random)), sign(random));
    double b = i % 3 ? std::copysign(std::pow(10, exponent(random)), sign(random)) : a;
    Scale scale = a > 0 && b > 0 && i % 2 ? Scale::kLog : Scale::kLinear;
    Axis axis = axis_of({a, b}, scale);
    ASSERT_LT(axis.low, axis.high) << a << " " << b;
    for (double v : {a, b}) {
      ASSERT_GE(axis.position(v), 0) << a << " " << b;
      ASSERT_LE(axis.position(v), 1) << a << " " << b;
    }
    ASSERT_LE(ticks(axis, 5).size(), 1000u);
  }
}

TEST(Smooth, KeepsStraightLinesAndTheFirstValue) {
  std::vector<double> line = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<double> result = smooth(line, 8);
  for (size_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(result[i], line[i]);
  EXPECT_EQ(smooth(line, 1), line);
}

TEST(Smooth, KeepsItsDigitsBehindAnOutlier) {
  std::vector<double> values(100, 3.5);
  values[20] = 1e19;
  std::vector<double> result = smooth(values, 8);
  for (size_t i = 30; i < values.size(); ++i) EXPECT_EQ(result[i], 3.5) << i;
  EXPECT_GT(result[20], 1e18);
}

TEST(Smooth, WindowIsForNoisyCurvesOnly) {
  std::vector<double> falling, noisy;
  for (int i = 0; i < 1000; ++i) {
    falling.push_back(10 * std::exp(-i / 100.0));
    noisy.push_back(falling.back() + (i % 2 ? 0.1 : -0.1));
  }
  EXPECT_EQ(smoothing_window(falling), 1);
  EXPECT_EQ(smoothing_window(noisy), 40);
  EXPECT_EQ(smoothing_window({1, 2, 1, 2}), 1);
}

Chart line_chart() {
  return {.title = "loss", .x_label = "step", .series = {{"run", {0, 1, 2, 3}, {4, 3, 2, 1}}}};
}

TEST(TextChart, IsThisPictureInAscii) {
  EXPECT_EQ(draw_text(line_chart(), {.columns = 24, .rows = 9}), R"(      loss
   4 +***
     |   *****
     |        **
   2 +          ****
     |              ****
     ++----------+------
step  0          2
      * run: 1
)");
}

TEST(TextChart, IsThisPictureInBraille) {
  EXPECT_EQ(draw_text(line_chart(), {.columns = 24, .rows = 9, .utf8 = true}), R"(      loss
   4 ┤⠢⢄⡀
     │  ⠈⠑⠢⢄⣀
     │       ⠉⠒⠤⣀
   2 ┤           ⠉⠒⠤⣀
     │               ⠉⠒⠤
     └┬──────────┬──────
step  0          2
      ── run: 1
)");
}

TEST(TextChart, FitsEverySizeAndAnyData) {
  std::vector<Series> all = {{"none", {}, {}}, {"one", {5}, {2}}, {"same", {1, 1}, {3, 3}}};
  all.push_back({"odd", {1, 2, 3, 4}, {NAN, INFINITY, -1, 1e300}});
  all.push_back({"\033[31mred\xFF", {0, 9}, {-5, 5}});
  for (int columns = 20; columns < 60; columns += 3)
    for (int rows = 10; rows < 30; rows += 3)
      for (Scale scale : {Scale::kLinear, Scale::kLog}) {
        Chart chart{.title = std::string(99, 't'), .x_label = "step", .y_scale = scale};
        chart.series = all;
        std::istringstream text(draw_text(chart, {.columns = columns, .rows = rows, .utf8 = true}));
        int count = 0;
        for (std::string line; std::getline(text, line); ++count) {
          EXPECT_LE(display_width(line), columns);
          EXPECT_EQ(line.find('\033'), std::string::npos);
        }
        EXPECT_LE(count, rows);
      }
}

TEST(SvgChart, ShowsTitleLegendTicksCurveAndLastValue) {
  Chart chart = line_chart();
  chart.series[0].name = "a<b>&\"c\"";
  std::string svg = draw_svg(chart);
  for (const char* part : {">loss</text>", ">step</text>", "a&lt;b&gt;&amp;&quot;c&quot;</text>",
                           ">3.0</text>", "<path d=\"M", "font-weight=\"bold\" stroke=\"#ffffff\""})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  EXPECT_EQ(svg.find("opacity"), std::string::npos);  // no faint line where nothing is smoothed
}

TEST(SvgChart, HasTheOutlineOfALastValueBelowIt) {
  std::string svg = draw_svg(line_chart());
  size_t outline = svg.find("stroke-width=\"3\" aria-hidden=\"true\">1</text>\n"),
         value = svg.find("fill=\"#0072b2\" font-weight=\"bold\">1</text>\n");
  ASSERT_NE(value, std::string::npos);
  EXPECT_LT(outline, value);
  EXPECT_EQ(svg.find("paint-order"), std::string::npos);
}

// Where the last value of the one curve begins, of a picture of 900 pixels.
double last_value_at(double value) {
  Chart chart = line_chart();
  chart.series[0].y.back() = value;
  std::string svg = draw_svg(chart);
  std::string text = svg.substr(0, svg.find(">" + short_number(value) + "</text>\n</svg>"));
  return std::stod(text.substr(text.rfind("<text x=\"") + 9));
}

TEST(SvgChart, HasRoomForItsLastValue) {
  constexpr double kBoldDigit = 8.36;  // pixels, of DejaVu Sans at 12
  for (double value : {-1.235e-05, 1.235e-05, -0.1235, 0.5})
    EXPECT_LE(last_value_at(value) + kBoldDigit * display_width(short_number(value)), 900) << value;
  EXPECT_EQ(last_value_at(0.5), 900 - 64 + 6);  // a short one takes no more than it did
}

TEST(SvgChart, HasNoCharacterThatXmlHasNoPlaceFor) {
  std::string svg = draw_svg({.title = "\xEF\xBF\xBE\xEF\xBF\xBF", .series = {}});
  EXPECT_EQ(svg.find("\xEF\xBF\xBE"), std::string::npos);
  EXPECT_EQ(svg.find("\xEF\xBF\xBF"), std::string::npos);
}

TEST(SvgChart, MayHaveATitleOfAnySize) {
  std::string title;
  for (int i = 0; i < 500000; ++i) title += "\xEF\xBF\xBE";
  EXPECT_GT(draw_svg({.title = title, .series = {}}).size(), title.size());
}

TEST(SvgChart, HasNoNumberThatIsNoneAndStaysSmall) {
  Chart chart{.title = "big", .x_label = "step", .y_scale = Scale::kLog};
  Series series{.name = "run", .x = {}, .y = {}};
  for (int i = 0; i < 200000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i % 1000 == 0 ? NAN : i % 777 == 0 ? -1 : 3 + std::sin(i) / 10);
  }
  chart.series = {series, {"empty", {}, {}}, {"constant", {5, 6}, {0, 0}}};
  std::string svg = draw_svg(chart);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_NE(svg.find("opacity"), std::string::npos);
  EXPECT_LT(svg.size(), 150000u);
}

TEST(Plot, DrawsLossOfOneRunWithItsValidation) {
  RunLog run = run_of("a", {{"train/lm_loss", {{1, 0, 5}, {2, 0, 4}}},
                            {"validation/lm_loss", {{2, 0, 4.5}}},
                            {"train/learning_rate", {{1, 0, 1}}}});
  Chart one = chart_of({run}, {});
  ASSERT_EQ(one.series.size(), 2u);
  EXPECT_EQ(one.series[0].name, "train/lm_loss");
  EXPECT_EQ(one.series[0].y, (std::vector<double>{5, 4}));
  Chart two = chart_of({run, run_of("b", run.series)}, {});
  ASSERT_EQ(two.series.size(), 2u);
  EXPECT_EQ(two.series[1].name, "b");
}

TEST(Plot, ARunWithoutTheLossIsNamed) {
  RunLog run = run_of("a", {{"train/lm_loss", {{1, 0, 5}}}}),
         other = run_of("b", {{"validation/lm_loss", {{1, 0, 5}}}});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(chart_of({run, other}, {}).series.size(), 1u);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("has no scalar 'train/lm_loss'"),
            std::string::npos);
}

TEST(Plot, ALossThatIsNoNumberAnyMoreIsSaid) {
  RunLog run = run_of("a", {{"train/lm_loss", {{1, 0, 5}, {2, 0, 4}, {3, 0, NAN}, {4, 0, NAN}}}});
  ::testing::internal::CaptureStderr();
  Chart chart = chart_of({run}, {});
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("and not drawn there"),
            std::string::npos);
  EXPECT_EQ(chart.series[0].name, "a (nan or infinite at 2 of 4 points, the last one too)");
}

TEST(Plot, ALogarithmicAxisSaysWhatItHasNoPlaceFor) {
  RunLog run = run_of("a", {{"loss", {{1, 0, 5}, {2, 0, 0}, {3, 0, NAN}, {4, 0, -1}}}});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(
      chart_of({run}, {.y_scale = Scale::kLog}).series[0].name,
      "a (nan or infinite at 1 of 4 points, not positive at 2 of 4 points, the last one too)");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("the last one too, and not drawn there"),
            std::string::npos);
  run.series["loss"].erase(run.series["loss"].begin() + 2);
  EXPECT_EQ(chart_of({run}, {}).series[0].name, "a");
}

TEST(Plot, TimeAxisStartsWithTheRunInAFittingUnit) {
  RunLog run = run_of("a", {{"loss", {{1, 1000, 5}, {2, 1000 + 7200, 4}, {3, 1000 + 36000, 3}}}});
  Chart chart = chart_of({run}, {.x = XAxis::kTime});
  EXPECT_EQ(chart.x_label, "time (h)");
  EXPECT_EQ(chart.series[0].x, (std::vector<double>{0, 2, 10}));
}

TEST(Plot, TokensAxisTakesTheLastCountOfTokens) {
  RunLog run = run_of("a", {{"loss", {{1, 0, 5}, {2, 0, 4}, {5, 0, 3}}},
                            {"train/tokens", {{2, 0, 200}, {4, 0, 400}}}});
  EXPECT_EQ(chart_of({run}, {.x = XAxis::kTokens}).series[0].x, (std::vector<double>{0, 200, 400}));
  run.series.erase("train/tokens");
  EXPECT_NE(usage_error([&] { chart_of({run}, {.x = XAxis::kTokens}); }).find("use --x step"),
            std::string::npos);
}

TEST(Plot, MissingTagNamesTheNearestAndThoseThatAreThere) {
  RunLog run = run_of("a", {{"train/lm_loss", {{1, 0, 5}}}, {"other", {{1, 0, 5}}}});
  EXPECT_EQ(usage_error([&] { chart_of({run}, {.tags = {"train/lmloss"}}); }),
            "no run has a scalar 'train/lmloss'; did you mean 'train/lm_loss'? There are:\n"
            "  other\n  train/lm_loss");
}

TEST(Plot, WrongRequestsAreNamed) {
  RunLog run = run_of("a", {{"loss", {{1, 0, 5}}}});
  EXPECT_NE(usage_error([&] { plot({run}, {.out = "x.png"}, {}); }).find(".svg"),
            std::string::npos);
  EXPECT_NE(usage_error([&] {
              plot({run}, {.width = 3}, {});
            }).find("--width is 3 columns; it can be 10 to 1000"),
            std::string::npos);
  EXPECT_NE(usage_error([&] { plot({run}, {.smooth = -2}, {}); }).find("--smooth"),
            std::string::npos);
  EXPECT_NE(usage_error([] { parse_x_axis("epoch"); }).find("step, time or tokens"),
            std::string::npos);
}

TEST(Plot, MakesTheDirectoryOfItsPicture) {
  RunLog run = run_of("a", {{"loss", {{1, 0, 5}, {2, 0, 4}}}});
  testing::Directory dir;
  EXPECT_EQ(plot({run}, {.out = dir / "plots/a.svg"}, {}), "wrote " + (dir / "plots/a.svg") + "\n");
  EXPECT_TRUE(read_file(dir / "plots/a.svg").starts_with("<svg"));
}

TEST(Plot, ListShowsPointsStepsAndLastValues) {
  RunLog run = run_of("a", {{"train/lm_loss", {{1, 0, 5}, {7, 0, 4.25}}}});
  EXPECT_THROW(list_scalars({{.path = "empty"}}), Error);
  EXPECT_EQ(list_scalars({run}),
            "a\n"
            "  tag              points  first step   last step  last value\n"
            "  train/lm_loss         2           1           7  4.25\n");
}

// A run that was resumed at step 60, for tests/oracle/tensorboard.py.
TEST(Plot, WritesARunForOthers) {
  const char* dir = std::getenv("NEOX_WRITE_RUN");
  if (!dir) GTEST_SKIP() << "NEOX_WRITE_RUN names no directory";
  for (int64_t first : {1, 60}) {
    Metrics metrics({.dir = dir, .tensorboard_dir = fs::path(dir) / "tb", .first_step = first});
    metrics.text(first, "config", "layers: 2\nhidden: 20");
    int64_t last = first == 1 ? 100 : 90;
    for (int64_t step = first; step <= last; ++step) {
      double loss = 10.0 / static_cast<double>(step) + static_cast<double>(first);
      metrics.write(step, {{"train/lm_loss", step == 13 ? NAN : loss}, {"big", 1e38 * loss}});
      if (step % 20 == 0) metrics.write(step, {{"validation/lm_loss", loss + 1}});
    }
    metrics.text(last, "samples", "für 😀");
  }
}

}  // namespace
}  // namespace neox
