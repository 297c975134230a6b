// One training step and all that it changes: parameters, moments, loss scale, the count of
// successful steps. Nothing in a step waits for the host.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "model/gpt_neox.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "train/pipeline.h"

namespace neox {

// What a step says of itself; equal on all ranks.
struct StepReport {
  double loss = 0;       // mean over the weights of the whole batch
  double grad_norm = 0;  // of the mean loss, before clipping
  double lr = 0, loss_scale = 1;
  bool finite = true;  // false: nothing was updated
  bool stop = false;   // some rank was asked to stop
};

class TrainStep {
 public:
  // nominal_weight: what the weights of a step's batch sum to when no token is masked.
  TrainStep(GptNeoX& model, const Config& config, double nominal_weight);

  // Collective over the world. `stop`: this rank was asked to stop. The result stays on the device
  // until read().
  Tensor run(int64_t microbatches, const BatchSource& batches, bool stop);
  static StepReport read(const Tensor& result);

  // Parameters and moments that this rank owns: all of it to load into, its share of it to save.
  // After loading: publish().
  std::vector<StateChunk> owned();
  std::vector<StateChunk> written();
  void publish();

  // Called in each step before anything that owned() names is changed.
  void before_update(std::function<void()> hook) { before_update_ = std::move(hook); }

  int64_t optimizer_steps() const;  // waits for the device
  LossScale& loss_scale() { return loss_scale_; }
  void restore(int64_t optimizer_steps);

 private:
  Tensor update(const Tensor& totals);  // [norm^2, loss, weight, stop] over the world

  GptNeoX& model_;
  double clip_, nominal_weight_;
  std::unique_ptr<Optimizer> optimizer_;
  LossScale loss_scale_;
  Tensor rates_;  // learning rate by successful steps
  Tensor steps_;  // 0-dim int64: successful steps
  std::function<void()> before_update_ = [] {};
};

}  // namespace neox
