// Runs the micro-batches of a step through this rank's pipeline stage, exchanging hidden states and
// their gradients with its neighbours. One stage is plain gradient accumulation by the same loop.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "model/gpt_neox.h"
#include "model/replay.h"
#include "train/own_time.h"
#include "train/schedule.h"

namespace neox {

using BatchSource = std::function<Batch(int64_t microbatch)>;

struct LossSum {
  Tensor loss, weight;  // 0-dim double, of this rank's samples; 0 but on the last stage
  Tensor measures;      // double: the same of PreferenceLoss; none where tokens are learnt
};

// What a stage does with a micro-batch is recorded where there is a recorder: forward and backward,
// each by itself, or both as one where the stage is the only one. A micro-batch has the slot that
// is its number modulo those in flight; what is recorded belongs to a slot, and the slots of those
// behind which gradients are summed are others. All are recorded in the same step, or as soon as
// they come: what graphs hold stays theirs, and work that still ran as it is would need memory
// beside that. Exchanges stay outside.
class Pipeline {
 public:
  explicit Pipeline(GptNeoX& model, GraphRecorder* recorder = nullptr);
  ~Pipeline();

  // Forward and backward of all micro-batches; gradients are in the buffers, their sync started.
  // seed (0-dim double) multiplies them. The result is valid until the next step. Collective over
  // the mesh's pp and tp axes, and over data where a buffer syncs.
  LossSum train(int64_t microbatches, const BatchSource& batches, const Tensor& seed);
  // This rank's own part of the last train().
  OwnTime::Spent take_own_time() { return own_time_.take(); }
  // Forward alone, without dropout. rows: null, or takes each micro-batch's row_losses(), [B]
  // double, on the last stage.
  LossSum evaluate(int64_t microbatches, const BatchSource& batches,
                   std::vector<Tensor>* rows = nullptr);

 private:
  struct Slot;
  struct Run {
    int64_t microbatches;
    const BatchSource& batches;
    const Tensor& seed;
    bool training;
    int64_t slots;
    std::vector<Tensor>* rows = nullptr;
  };

  LossSum run(const std::vector<Action>& actions, const Run& run);
  void forward(int64_t m, const Run& run);
  void backward(int64_t m, const Run& run);
  void forward_pass(Slot& slot, std::vector<Tensor>* rows = nullptr);
  void backward_pass(Slot& slot);
  Slot& slot_of(int64_t m, const Run& run);
  void meet_neighbours();
  void send(int peer, const Tensor& x);
  void receive(int peer, Tensor& x);
  Tensor part_of(const Tensor& x) const;
  void flush();
  bool first() const { return model_.mesh().first_stage(); }
  bool last() const { return model_.mesh().last_stage(); }
  bool alone() const { return first() && last(); }

  GptNeoX& model_;
  Communicator& pp_;
  GraphRecorder* recorder_;
  OwnTime own_time_;
  LossSum sum_;
  int64_t step_ = 0;  // counted from 1 on
  Replay begin_;      // clears gradients
  std::map<std::pair<int64_t, bool>, std::unique_ptr<Slot>> slots_;
  std::vector<Communicator::Transfer> pending_;
  bool met_ = false;  // the neighbours
};

}  // namespace neox
