#include "train/run_copies.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/writing.h"
#include "launch/process_info.h"

namespace neox {
namespace {

using Clock = std::chrono::steady_clock;

// Within the deadline of those that wait.
constexpr std::chrono::seconds kRhythm(60);
constexpr const char* kGoesOn = "goes on";

std::vector<int64_t> steps_in(const fs::path& run_dir) {
  std::vector<int64_t> steps;
  for (const fs::path& entry : entries_of(run_dir))
    if (auto step = step_of(entry.filename().string())) steps.push_back(*step);
  std::ranges::sort(steps);
  return steps;
}

// While it is there, a stop ends the waiting for a server that does not answer.
class GivesUpAtStop {
 public:
  GivesUpAtStop(S3Directory& place, const StopFlag& stop)
      : thread_([&](const std::stop_token& end) {
          while (!end.stop_requested()) {
            if (stop.load()) return place.give_up();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }) {}

 private:
  std::jthread thread_;
};

// What is met first is a name or a right that is wrong.
template <class Work>
auto reach(const Config& config, const StopFlag& stop, Work work) {
  try {
    return work();
  } catch (const Error& e) {
    check_not_stopped(stop, "before S3 had answered");
    fail(e.exit(), config.where("s3_path"), ": s3_path is ", config.checkpoint.s3_path, ": ",
         e.what(), "; credentials are those of `aws s3 ls`, s3://bucket/prefix?region=... names a ",
         "region that is not found, and AWS_ENDPOINT_URL a server other than AWS's");
  }
}

}  // namespace

RunCopies::RunCopies(const Config& config, Control& control, const RunPlace& place)
    : config_(config), control_(control), run_(place) {
  if (config.checkpoint.s3_path.empty()) return;
  if (control.rank() == 0) {
    const CheckpointConfig& c = config.checkpoint;
    place_ = reach(config, place.stop, [&] { return open_s3(s3_place(c.s3_path, c.save)); });
    fetch_lost();
  }
  told_by_first("");
}

Poll RunCopies::poll(const char* when) {
  return [this, when, due = Clock::now() + kRhythm]() mutable {
    check_not_stopped(run_.stop, when);
    if (Clock::now() < due) return;
    control_.gather(kGoesOn);
    due = Clock::now() + kRhythm;
  };
}

std::string RunCopies::told_by_first(const std::string& mine) {
  std::string told;
  do told = control_.gather(mine)[0];
  while (told == kGoesOn);
  return told;
}

void RunCopies::fetch_lost() {
  const CheckpointConfig& c = config_.checkpoint;
  GivesUpAtStop watch(*place_, run_.stop);
  std::vector<int64_t> here = steps_in(c.save);
  std::vector<int64_t> there = reach(config_, run_.stop, [&] { return list_copies(*place_); });
  if (there.empty()) return;
  if (!here.empty()) {
    if (here.back() < there.back())
      log_warning(config_.where("s3_path"), ": ", place_->url(), " holds ", step_name(there.back()),
                  ", and the newest in ", c.save.string(), " is ", step_name(here.back()),
                  ", from which the run goes on");
    return;
  }
  check_usage(!c.load.empty(), config_.where("s3_path"), ": ", place_->url(), " holds ",
              step_name(there.back()),
              " of an earlier run. To go on from it set load: ", c.save.string(),
              "; to start anew give a save directory of another name, or another ", "s3_path");
  bool chosen = c.iteration && same_place(c.load, c.save);
  int64_t step = chosen ? *c.iteration : there.back();
  if (std::ranges::find(there, step) == there.end()) return;  // find_start() says what is missing
  const char* when = "while a checkpoint was fetched";
  try {
    fetch_copy(*place_, step, c.save, run_.life, poll(when));
  } catch (const Error&) {
    check_not_stopped(run_.stop, when);
    throw;
  }
}

void RunCopies::begin(const Start& start) {
  if (!place_) return;
  const fs::path& save = config_.checkpoint.save;
  std::string writer =
      concat("run ", run_.life, " on ", host_name(), " copies ", fs::absolute(save).string(), "\n");
  copies_ = reach(config_, run_.stop, [&] {
    GivesUpAtStop watch(*place_, run_.stop);
    return std::make_unique<CheckpointCopies>(*place_, writer);
  });
  if (start.checkpoint && same_place(start.checkpoint->dir().parent_path(), save))
    newest_ = start.checkpoint->state().iteration;
  for (int64_t step : steps_in(save))
    if (fs::path dir = save / step_name(step); step <= newest_ && is_there(dir / kCompleteFile))
      copies_->add(dir);
}

void RunCopies::saved(int64_t step) {
  if (!copies_) return;
  newest_ = step;
  copies_->add(config_.checkpoint.save / step_name(step));
}

void RunCopies::finish_here() {
  copies_->finish(poll("while checkpoints were copied"));
  const CheckpointConfig& c = config_.checkpoint;
  if (!newest_) return;  // nothing was trained
  prune({.dir = c.save, .life = run_.life, .keep_last = c.keep_last}, *newest_);
}

void RunCopies::finish() {
  if (config_.checkpoint.s3_path.empty()) return;
  std::string failure;
  Exit exit = Exit::kIo;
  try {
    if (copies_) finish_here();
  } catch (const Error& e) {
    failure = e.what();
    exit = e.exit();
  }
  std::string told =
      told_by_first(failure.empty() ? "" : concat(static_cast<int>(exit), " ", failure));
  if (told.empty()) return;
  size_t space = told.find(' ');
  fail(static_cast<Exit>(std::stoi(told.substr(0, space))), told.substr(space + 1));
}

}  // namespace neox
