#include "train/pace.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "rendezvous/names.h"

namespace neox {
namespace {

constexpr double kSlow = 1.2;       // times the median
constexpr int64_t kLeastSteps = 5;  // of a window

// The median of a rank's stage, by rank: stages do different work. Of an even number of ranks the
// faster one in the middle, so that of two ranks the slower one is found.
std::vector<double> medians_by_stage(const std::vector<double>& times, int stages) {
  std::vector<double> medians;
  auto ranks = times.size() / static_cast<size_t>(stages);
  for (size_t first = 0; first < times.size(); first += ranks) {
    auto begin = times.begin() + static_cast<std::ptrdiff_t>(first);
    std::vector<double> stage(begin, begin + static_cast<std::ptrdiff_t>(ranks));
    std::ranges::sort(stage);
    medians.insert(medians.end(), ranks, stage[(ranks - 1) / 2]);
  }
  return medians;
}

}  // namespace

Pace::Pace(Job& job, const Layout& layout, std::chrono::duration<double> window)
    : job_(job), layout_(layout), window_(window) {}

void Pace::step(double own_seconds) {
  ++own_.steps;
  own_.seconds += own_seconds;
  // To the millisecond after weeks, too: what is looked at is the difference of half a minute.
  job_.tell(concat(own_.steps, printed(" %.3f", own_.seconds)));
}

std::vector<Pace::Count> Pace::counts() const {
  std::vector<Count> all(static_cast<size_t>(layout_.size()));
  std::vector<std::string> told = job_.told();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::vector<std::string> words = split(told[rank], ' ');
    if (words.size() != 2) continue;  // nothing yet
    all[rank] = {number_of<int64_t>(words[0]).value_or(0), number_of<double>(words[1]).value_or(0)};
  }
  return all;
}

std::optional<Pace::Look> Pace::look() {
  auto now = std::chrono::steady_clock::now();
  if (now - looked_ < window_) return std::nullopt;
  std::vector<Count> counts = this->counts();
  bool first = before_.empty();  // what came before were first steps, which are slower
  std::vector<double> times;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    Count before = first ? Count() : before_[rank];
    int64_t steps = counts[rank].steps - before.steps;
    if (steps < kLeastSteps) return std::nullopt;
    times.push_back((counts[rank].seconds - before.seconds) / static_cast<double>(steps));
  }
  looked_ = now;
  before_ = counts;
  if (first) return std::nullopt;
  std::vector<double> medians = medians_by_stage(times, layout_.pp);
  Look look{1, ""};
  std::vector<int> suspected, slow;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    double ratio = times[static_cast<size_t>(rank)] / medians[static_cast<size_t>(rank)];
    look.slowest = std::max(look.slowest, ratio);
    if (!(ratio >= kSlow)) continue;  // 0 / 0 of a rank alone
    suspected.push_back(rank);
    if (std::ranges::binary_search(suspected_, rank)) slow.push_back(rank);
  }
  suspected_ = suspected;
  if (slow != named_ && !slow.empty()) look.warning = warning(slow, times, medians);
  if (!slow.empty() || suspected.empty()) named_ = slow;
  return look;
}

// All that wait are told of the slowest one.
std::string Pace::warning(const std::vector<int>& slow, const std::vector<double>& times,
                          const std::vector<double>& medians) const {
  double ratio = 0, seconds = 0;
  for (int rank : slow) {
    auto r = static_cast<size_t>(rank);
    if (times[r] / medians[r] < ratio) continue;
    ratio = times[r] / medians[r];
    seconds = times[r];
  }
  bool one = slow.size() == 1;
  return concat(name_ranks(slow, job_.hosts()), one ? " is" : " are",
                " slow, and the others wait: ", one ? "its" : "their", " own part of a step took ",
                one ? "" : "up to ",
                seconds < 1 ? printed("%.3g ms", seconds * 1e3) : printed("%.3g s", seconds), ", ",
                printed("%.2f", ratio),
                " times the median of the ranks with the same work; neox-doctor compares nodes");
}

}  // namespace neox
