// What the Trainer reads, and what becomes of a run whose samples cannot be read.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "train/ranks.h"
#include "train/trainer.h"

namespace neox {

// A rank that evaluates other samples changes the loss without a word; one that leaves a split out
// keeps the others waiting.
void Trainer::check_samples(const Start& start) {
  for (auto [name, split] : {std::pair{"the training data", Split::kTrain},
                             {"the validation data", Split::kValid},
                             {"the test data", Split::kTest}})
    check_read_alike(p_.control, name, p_.sampler.fingerprint(split));
  std::string data = p_.sampler.fingerprint(Split::kTrain);
  // Empty: a checkpoint of another program, which does not say.
  check_usage(
      fresh_ || state_.dataset_hash.empty() || state_.dataset_hash == data,
      "the training data is not that with which the run of ",
      fresh_ ? "" : start.checkpoint->dir().string(),
      " began, so which samples were already seen is not known. ",
      start.changed.empty() ? "" : concat("Changed since then: ", start.changed, ". "),
      "Give it the data paths and weights, data_order, seed, split, seq_length and train_epochs it "
      "began with, or give the new data a save directory of its own. (Fingerprints: ",
      data, ", there ", state_.dataset_hash, ")");
  state_.dataset_hash = data;
}

// The other ranks wait in a step, or an evaluation, for the part of one that cannot read its
// samples: it takes part without any, and all learn it from the sums.
Batch Trainer::batch_or_none(Batches& source, int64_t first, int64_t m) {
  if (!lack_) {
    try {
      return source.get(first, m);
    } catch (const Error& e) { lack_ = e; }
  }
  return source.none();
}

BatchSource Trainer::step_batches(Batches& source, int64_t first, int64_t seq) {
  auto get = [this, &source, first, seq](int64_t m) {
    return beginning(batch_or_none(source, first, m), seq);
  };
  if (!p_.reference) return get;
  std::vector<Batch> batches;
  for (int64_t m = 0; m < source.plan_at(first).accumulation; ++m) batches.push_back(get(m));
  p_.reference->rate(batches);
  return [batches = std::move(batches)](int64_t m) { return batches[static_cast<size_t>(m)]; };
}

void Trainer::end_without_data() {
  stop_ = true;  // not in the background
  let_save_end();
  try {
    if (state_.iteration > 0 && saved_at_ != state_.iteration) save();
  } catch (const Error& e) {
    if (e.exit() == Exit::kPeerLost) throw;  // nobody comes to the gathering below
    log_warning(e.what());
  } catch (const std::exception& e) { log_warning(e.what()); }
  auto all = p_.control.gather(lack_ ? lack_->what() : "");
  if (lack_) throw *lack_;
  auto rank = std::ranges::find_if(all, [](const auto& why) { return !why.empty(); });
  check(rank != all.end(), "the step reports a rank without samples, and all have theirs");
  fail(Exit::kIo, "rank ", rank - all.begin(), " cannot read its samples: ", *rank);
}

}  // namespace neox
