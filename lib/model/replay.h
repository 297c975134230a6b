// One unit of work on the device after the other, the same in each pass: run as they are in the
// first passes, which warm libraries up, then recorded, then replayed. Other shapes begin again. A
// thread's own.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "model/graphs.h"

namespace neox {

class Replay {
 public:
  using Work = GraphRecorder::Work;
  static constexpr int kWarmUps = 2;

  // recorder: null runs all passes as they are. name: what it is, for messages. Units of one pool
  // run in the order of their first recording. warm: passes of others that did the same.
  Replay(GraphRecorder* recorder, std::string name, int pool = 0, int warm = 0)
      : recorder_(recorder), name_(std::move(name)), pool_(pool), pass_(warm) {}

  // Begins a pass, or does once more what the last one did. The inputs that its units read: these,
  // or tensors of the same values that stay where they are. Undefined ones stay so.
  enum class Pass { kNext, kAgain };
  std::vector<at::Tensor> begin(const std::vector<at::Tensor>& inputs, Pass pass = Pass::kNext);
  // The next unit of the pass. work reads nothing that changes from pass to pass but the inputs and
  // what lies where it lay; on replay the host's part of it does not run. Where the first unit
  // cannot be recorded, that is said once, and all runs as it is from now on; a later unit throws,
  // and with a recorder that insists the first one does.
  void run(const Work& work);

  // This pass is recorded, or replayed: what its work has made stays where it is.
  bool recorded() const { return recorder_ && !recorder_->waits && pass_ > kWarmUps; }

 private:
  void record(const Work& work);

  GraphRecorder* recorder_;
  std::string name_;
  int pool_;
  int pass_;  // of these shapes, from 1 on; stays when all is recorded
  size_t unit_ = 0;
  std::string shapes_;              // of the inputs
  std::vector<at::Tensor> inputs_;  // where units read them
  std::vector<Work> units_;
};

}  // namespace neox
