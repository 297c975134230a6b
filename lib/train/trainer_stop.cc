// When the Trainer stops early, and what it says of that.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "train/trainer.h"

namespace neox {

std::string Trainer::wants_stop() const {
  if (int signal = p_.stop.load()) return concat("asked to by ", signal_name(signal));
  return p_.limit.due();
}

RankState Trainer::rank_state() {
  if (why_stop_.empty()) why_stop_ = wants_stop();
  return {!why_stop_.empty(), lack_.has_value()};
}

std::string Trainer::why_all_stop() {
  rank_state();  // as of now
  auto all = p_.control.gather(why_stop_);
  if (!all[0].empty()) return all[0];
  auto rank = std::ranges::find_if(all, [](const auto& why) { return !why.empty(); });
  check(rank != all.end(), "the step reports a rank that would stop, and all would go on");
  return concat("rank ", rank - all.begin(), ": ", *rank);
}

void Trainer::say_stopped(const std::string& why) const {
  if (p_.control.rank() != 0) return;
  const CheckpointConfig& c = p_.config.checkpoint;
  log_info("stopped at step ", state_.iteration, " of ", p_.config.train.iters, ": ", why,
           c.save.empty()   ? "; nothing was saved, because save is not set"
           : c.load.empty() ? concat("; with load: ", c.save.string(), " it goes on from there")
                            : "; the same command goes on from there");
}

}  // namespace neox
