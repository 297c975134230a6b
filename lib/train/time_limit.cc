#include "train/time_limit.h"

#include <ctime>

#include "base/error.h"
#include "base/text.h"

namespace neox {

namespace {

// A save that takes half as long again as the last one, two more steps, and leaving.
constexpr double kSaveFactor = 1.5, kLeaveSeconds = 10;

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

}  // namespace neox
