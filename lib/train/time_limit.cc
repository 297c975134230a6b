#include "train/time_limit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace neox {

namespace {

// A save that takes half as long again as the last one, two more steps, and leaving.
constexpr double kSaveFactor = 1.5, kLeaveSeconds = 10;
// Seconds by which clocks may differ and nothing is said.
constexpr double kApart = 60;

// left: by rank, as each counts at one moment, where it knows.
std::string clocks_apart(const std::vector<std::optional<double>>& left,
                         std::span<const std::string> hosts) {
  std::vector<std::string> nodes;
  double ahead = 0;  // the first of them
  for (size_t rank = 0; rank < left.size(); ++rank) {
    double seconds = left[rank] ? *left[0] - *left[rank] : 0;
    bool named = std::ranges::find(nodes, hosts[rank]) != nodes.end();
    if (std::abs(seconds) <= kApart || named) continue;
    if (nodes.empty()) ahead = seconds;
    nodes.push_back(hosts[rank]);
  }
  if (nodes.empty()) return "";
  size_t more = nodes.size() - 1;
  return concat("the clock of ", nodes[0], " is ", human_duration(std::abs(ahead)),
                ahead > 0 ? " ahead of" : " behind", " that of ", hosts[0],
                ", which tells all ranks when the allocation ends",
                more ? concat(", and ", more, " more are off") : "",
                "; set the clocks (chronyc tracking says how far each is off)");
}

}  // namespace

TimeLimit::TimeLimit(std::optional<double> allocation_left, double duration, double guess,
                     Clock::time_point start)
    : start_(start), allocation_(allocation_left), duration_(duration), save_(guess) {}

std::string TimeLimit::due(Clock::time_point now) const {
  double passed = Seconds(now - start_).count();
  if (duration_ > 0 && passed >= duration_)
    return concat("exit_duration_in_mins: ", human_duration(duration_), " have passed");
  double saving = kSaveFactor * save_ * (under_way_ ? 2 : 1);
  double lead = saving + 2 * step_ + kLeaveSeconds;
  if (allocation_ && passed + lead >= *allocation_)
    return concat("the allocation ends in ", human_duration(std::max(0.0, *allocation_ - passed)),
                  ", of which saving may take ", human_duration(saving));
  return "";
}

std::optional<double> allocation_left(const Environment& env) {
  for (const char* name : {"NEOX_JOB_END_TIME", "SLURM_JOB_END_TIME"}) {
    std::string text = variable(env, name);
    if (text.empty()) continue;
    auto end = number_of<int64_t>(text);
    check_usage(end.has_value(), name, "=", text,
                ": expected the end of the job in seconds since 1970, as `date +%s` gives");
    return static_cast<double>(*end - std::time(nullptr));
  }
  return std::nullopt;
}

SharedEnd share_end(Control& control, std::span<const std::string> hosts,
                    TimeLimit::Clock::time_point start, std::optional<double> left) {
  control.barrier();  // all count at one moment: what differs then is their clocks
  double passed = TimeLimit::Seconds(TimeLimit::Clock::now() - start).count();
  std::vector<std::optional<double>> all;
  for (const std::string& text : control.gather(left ? printed("%.3f", *left - passed) : ""))
    all.push_back(number_of<double>(text));
  if (!all[0]) return {};
  return {*all[0] + passed, clocks_apart(all, hosts)};
}

}  // namespace neox
