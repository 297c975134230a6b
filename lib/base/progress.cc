#include "base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/log.h"
#include "base/text.h"

namespace neox {
namespace {

constexpr double kLookSeconds = 0.1;
constexpr double kFirstPlainSeconds = 2;
constexpr double kRateSeconds = 0.5;  // a shorter time says nothing about the rate
constexpr size_t kRecentSamples = 20;
constexpr int kMinBar = 8, kMaxBar = 30;

// "[=====>    ]", or with eighths of a block.
std::string draw_bar(double fraction, int width, bool utf8) {
  static const char* const kEighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  std::string bar = "[";
  for (int i = 0; i < width; ++i) {
    double filled = std::clamp(fraction * width - i, 0.0, 1.0);
    if (utf8) {
      bar += kEighths[static_cast<int>(filled * 8)];
    } else {
      bar += filled >= 1 ? '=' : filled > 0 ? '>' : ' ';
    }
  }
  return bar + "]";
}

}  // namespace

ProgressScreen ProgressScreen::standard_error() {
  return {
      .terminal = [] { return terminal_of(STDERR_FILENO); },
      .live = [](const std::string& text) { set_live_line(text); },
      .line = [](const std::string& text) { log_info(text); },
      .seconds =
          [] {
            using namespace std::chrono;
            return duration<double>(steady_clock::now().time_since_epoch()).count();
          },
  };
}

Progress::Progress(Options options, ProgressScreen screen)
    : screen_(std::move(screen)),
      options_(std::move(options)),
      begin_(screen_.seconds()),
      plain_due_(begin_ + kFirstPlainSeconds),
      done_(options_.start) {
  recent_.push_back({begin_, done_});
}

Progress::~Progress() {
  std::lock_guard lock(mutex_);
  if (!finished_) screen_.live("");
}

void Progress::update(int64_t done) {
  std::lock_guard lock(mutex_);
  set_done(done);
}

void Progress::update(int64_t done, std::string_view extra) {
  std::lock_guard lock(mutex_);
  extra_ = extra;
  set_done(done);
}

void Progress::add(int64_t units) {
  std::lock_guard lock(mutex_);
  set_done(done_ + units);
}

void Progress::set_total(int64_t total) {
  std::lock_guard lock(mutex_);
  options_.total = total;
}

void Progress::finish() {
  std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  screen_.live("");
  if (options_.plain == Plain::kNever) return;
  double seconds = screen_.seconds() - begin_;
  std::string text =
      concat(options_.label, ": ", counted(done_), " ",
             options_.unit == "B" ? "" : options_.unit + " ", "in ", human_duration(seconds));
  recent_ = {{begin_, options_.start}};
  std::string fast = speed(begin_ + seconds);
  if (!fast.empty()) text += ", " + fast;
  if (!extra_.empty()) text += ", " + extra_;
  screen_.line(text);
}

void Progress::set_done(int64_t done) {
  done_ = done;
  double now = screen_.seconds();
  if (finished_) return;
  if (now - recent_.back().seconds >= 1) recent_.push_back({now, done_});
  if (recent_.size() > kRecentSamples) recent_.pop_front();
  show(now);
}

void Progress::show(double now) {
  if (now < look_due_) return;
  look_due_ = now + kLookSeconds;
  Terminal terminal = screen_.terminal();
  if (terminal.live) {
    screen_.live(live_line(terminal, now));
  } else if (options_.plain == Plain::kByTime && now >= plain_due_) {
    plain_due_ = now + std::max(10.0, (now - begin_) / 20);
    screen_.line(plain_line(now));
  }
}

double Progress::rate(double now) const {
  double seconds = now - recent_.front().seconds;
  if (seconds < kRateSeconds) return 0;
  return static_cast<double>(done_ - recent_.front().done) / seconds;
}

std::string Progress::counted(int64_t n) const {
  return options_.unit == "B" ? human_bytes(static_cast<double>(n)) : with_commas(n);
}

std::string Progress::amount() const {
  std::string text = counted(done_);
  if (options_.total >= 0) text += "/" + counted(options_.total);
  return options_.unit == "B" ? text : text + " " + options_.unit;
}

// "386/s", "12.3 MB/s", and for slow work "19.8 s each"; "" where it is not known yet.
std::string Progress::speed(double now) const {
  double per_second = rate(now);
  if (per_second <= 0) return "";
  if (options_.unit == "B") return human_bytes(per_second) + "/s";
  if (per_second < 1) return human_duration(1 / per_second) + " each";
  return human_count(per_second < 100 ? std::round(per_second * 10) / 10 : std::round(per_second)) +
         "/s";
}

std::string Progress::left(double now) const {
  double per_second = rate(now);
  if (options_.total < 0 || per_second <= 0 || now - begin_ < 1) return "";
  double units = static_cast<double>(std::max<int64_t>(0, options_.total - done_));
  return human_duration(units / per_second) + " left";
}

std::string Progress::live_line(const Terminal& terminal, double now) const {
  int room = terminal.columns - 1;
  std::string tail = " " + amount();
  for (const std::string& part : {speed(now), left(now), extra_})
    if (!part.empty()) tail += "  " + part;
  std::string line = options_.label;
  int bar = std::min(kMaxBar, room - display_width(line) - display_width(tail) - 8);
  if (options_.total > 0) {
    double fraction = static_cast<double>(done_) / static_cast<double>(options_.total);
    int percent = static_cast<int>(100 * std::clamp(fraction, 0.0, 1.0));
    if (bar >= kMinBar) line += " " + draw_bar(fraction, bar, terminal.utf8);
    line += concat(percent < 10 ? "   " : percent < 100 ? "  " : " ", percent, "%");
  }
  return cut_to_width(line + tail, room);
}

std::string Progress::plain_line(double now) const {
  std::string text = options_.label + ": " + amount();
  if (options_.total > 0) text += concat(" (", 100 * done_ / options_.total, "%)");
  for (const std::string& part : {speed(now), left(now), extra_})
    if (!part.empty()) text += ", " + part;
  return text;
}

}  // namespace neox
