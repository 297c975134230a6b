// What the Trainer watches beside the steps.
#include "base/error.h"
#include "base/log.h"
#include "train/pace.h"
#include "train/trainer.h"

namespace neox {

// A run that was taken over would train on and find out at its next save.
void Trainer::watch_claim() {
  const fs::path& save = p_.config.checkpoint.save;
  auto now = TimeLimit::Clock::now();
  if (p_.control.rank() != 0 || save.empty() || now < claim_due_) return;
  claim_due_ = now + std::chrono::seconds(10);
  try {
    check_claim(save, p_.life);
  } catch (const Error& e) {
    if (e.exit() == Exit::kUsage) throw;  // storage that fails now may be well at the next save
  }
}

void Trainer::watch_pace(int64_t iteration, double own_seconds) {
  if (!p_.pace) return;
  p_.pace->step(own_seconds);
  if (p_.control.rank() != 0 || iteration % p_.config.train.log_interval != 0) return;
  auto look = p_.pace->look();
  if (!look) return;
  report_.measured(iteration, {{"runtime/slowest_rank", look->slowest}});
  if (!look->warning.empty()) log_warning(look->warning);
}

SaveOptions Trainer::save_options() const {
  const CheckpointConfig& c = p_.config.checkpoint;
  return {.dir = c.save, .life = p_.life, .keep_last = c.keep_last, .needed = p_.needed};
}

}  // namespace neox
