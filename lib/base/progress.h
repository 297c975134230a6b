// Progress of long work, for people. On a terminal one live line is rewritten in place, at most ten
// times a second; elsewhere plain log lines come at growing intervals (2 s, 12 s, then every 10 s
// or a twentieth of the time so far). Log lines of any thread appear above the live line.
// Thread-safe. One at a time: a second one takes the live line over.
//
//   Progress progress({.label = "tokenize", .unit = "documents", .total = n});
//   for (...) progress.add(1);
//   progress.finish();
//
// A trainer, which writes its own log lines, counts from where it resumed and has the live line
// only:
//   Progress progress({.label = "train", .unit = "steps", .total = steps, .start = step,
//                      .plain = Progress::Plain::kNever});
//   progress.update(step, "loss 3.21");
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "base/terminal.h"

namespace neox {

// Where a Progress shows itself and what time it is; tests replace the parts.
struct ProgressScreen {
  std::function<Terminal()> terminal;
  std::function<void(const std::string&)> live;  // replaces the live line; "" removes it
  std::function<void(const std::string&)> line;  // one more plain line
  std::function<double()> seconds;               // monotonic

  static ProgressScreen standard_error();
};

class Progress {
 public:
  static constexpr int64_t kUnknown = -1;
  enum class Plain { kByTime, kNever };

  struct Options {
    std::string label;
    std::string unit;  // plural: "documents"; "B" is shown as kB, MB, GB
    int64_t total = kUnknown;
    int64_t start = 0;  // done before this Progress began; does not count into the rate
    Plain plain = Plain::kByTime;
  };

  explicit Progress(Options options, ProgressScreen screen = ProgressScreen::standard_error());
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Removes the live line; says nothing else, since without finish() the work failed.
  ~Progress();

  // `done` units of the total are ready. The extra text stays until it is replaced.
  void update(int64_t done);
  void update(int64_t done, std::string_view extra);
  void add(int64_t units);
  // Where the total is learned, or better known, while the work goes on.
  void set_total(int64_t total);

  // Removes the live line and writes one plain line: how much, how long, how fast. The second call
  // does nothing.
  void finish();

 private:
  void show(double now);
  void set_done(int64_t done);
  double rate(double now) const;
  std::string amount() const;
  std::string speed(double now) const;
  std::string left(double now) const;
  std::string live_line(const Terminal& terminal, double now) const;
  std::string plain_line(double now) const;
  std::string counted(int64_t n) const;

  struct Sample {
    double seconds;
    int64_t done;
  };

  const ProgressScreen screen_;
  std::mutex mutex_;  // guards what follows
  Options options_;
  double begin_;
  double look_due_ = 0;  // when to look at the terminal again
  double plain_due_;
  int64_t done_;
  std::string extra_;
  std::deque<Sample> recent_;  // one a second, the last 20
  bool finished_ = false;
};

}  // namespace neox
