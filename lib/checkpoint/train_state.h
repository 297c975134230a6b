// All of a training run that is not a tensor: written to every checkpoint as JSON that people can
// read.
#pragma once
#include <cstdint>
#include <string>

namespace neox {

struct TrainState {
  int64_t iteration = 0;        // steps taken, skipped ones included
  int64_t optimizer_steps = 0;  // steps that changed the parameters
  int64_t consumed_samples = 0;
  // Frozen at the first start; they win over the config ever after.
  int64_t global_batch = 0;     // samples of a step
  int64_t dataset_samples = 0;  // training samples asked for: enters the shuffle
  int64_t padded_vocab = 0;
  int64_t micro_batch = 0;  // 0: not known, as in files of before
  double loss_scale = 1;
  int64_t growth = 0;      // finite steps since the scale last changed
  int64_t hysteresis = 0;  // overflows left before the scale falls; 0: there is no dynamic scale
  // The last step behind which validation was done; files of before have none, and owe none.
  int64_t evaluated = -1;
  // Of this checkpoint: until all ranks had written their files and looked at them. 0: not known,
  // as in files of before.
  double save_seconds = 0;
  // Of preference optimization: the iteration of the checkpoint in `load` that the run began as,
  // and Checkpoint::parameters_hash() of it. -1, empty: not known, as in files of before, or none.
  int64_t reference_step = -1;
  std::string reference_hash = {};
  std::string dataset_hash = {};
  std::string tokenizer_hash = {};  // empty: not known, as in files of before
  std::string architecture = {};    // what decides the tensors: "6 layers, hidden 512, ..."
  std::string config = {};          // effective config as YAML
  bool operator==(const TrainState&) const = default;
};

// One key per member, in this order; numbers come back exactly. Throws for a scale that is not
// finite and for text that is not UTF-8.
std::string to_json(const TrainState& state);
// Throws unless every key is there with its type, but for those that files of before lack; `where`
// is for messages.
TrainState train_state_from_json(const std::string& text, const std::string& where);

}  // namespace neox
