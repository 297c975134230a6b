// One training step and all that it changes: parameters, moments, loss scale, the count of
// successful steps. Nothing in a step waits for the host, and where there is a recorder the host
// starts a step as a few graphs.
#pragma once
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Event.h>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "model/gpt_neox.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "train/pipeline.h"
#include "train/text_size.h"

namespace neox {

// Means over the tokens or answers of samples.
struct Evaluation {
  double loss = 0;
  std::vector<double> measures = {};  // as of PreferenceLoss
  TextSize size = {};                 // of what it read, where that is asked for
};

// Which sign a NaN has depends on the processor's instructions, and says nothing.
inline double without_sign_of_nan(double x) { return std::isnan(x) ? std::abs(x) : x; }

// What a step says of itself; equal on all ranks but for own_seconds.
struct StepReport {
  double loss = 0;       // mean over the weights of the whole batch
  double grad_norm = 0;  // of the mean loss, before clipping
  double lr = 0, loss_scale = 1;
  bool finite = true;  // false: nothing was updated
  bool stop = false;   // some rank was asked to stop
  // Some rank could not read its samples: nothing was updated, nor the loss scale.
  bool lacks_data = false;
  std::vector<double> measures = {};  // as in Evaluation
  // Of mixtures of experts: the most rows that an expert of a layer had, of an even share; a mean.
  double expert_load = 0;
  double own_seconds = 0;  // as of OwnTime
};

// What a rank says to the others with its part of a step.
struct RankState {
  bool stop = false;        // it was asked to stop
  bool lacks_data = false;  // it could not read its samples, and took part without any
};

// A report on its way from the device.
struct ReportToCome {
  Tensor values;                      // on the host
  std::optional<c10::Event> arrival;  // none: they are there
  OwnTime::Spent own_time = {};
};

class TrainStep {
 public:
  // recorder: null where nothing is recorded.
  TrainStep(GptNeoX& model, const Config& config, GraphRecorder* recorder = nullptr);

  // Collective over the world. nominal_weight: tokens, or samples of answers, by which the loss is
  // divided where backward begins; what the step then takes is the mean over those that counted.
  // `state` is asked when all micro-batches were read.
  ReportToCome run(
      int64_t microbatches, const BatchSource& batches, double nominal_weight,
      const std::function<RankState()>& state = [] { return RankState{}; });
  // Waits for that step alone, not for what was started behind it.
  StepReport read(const ReportToCome& report) const;

  // Bytes of this rank that stay from step to step.
  struct Memory {
    int64_t parameters = 0, gradients = 0, optimizer = 0;
  };
  Memory memory() const;

  GptNeoX& model() { return model_; }
  // Parameters and moments that this rank owns: all of it to load into, its share of it to save.
  // After loading: publish(), whose end the first use of each bucket's parameters waits for.
  std::vector<StateChunk> owned();
  std::vector<StateChunk> written();
  void publish();
  // Gradients that the last step left, cut as written() is, with the state "gradient";
  // gradient_scale(), 0-dim double, makes them those of the mean loss, whose norm is
  // gradient_norm(), of all ranks, before clipping.
  std::vector<StateChunk> gradients();
  const Tensor& gradient_scale() const { return unscale_; }
  Tensor gradient_norm() const { return result_.select(0, 1); }

  // Called in each step before anything that owned() names is changed.
  void before_update(std::function<void()> hook) { before_update_ = std::move(hook); }

  // Why the update is not recorded, or "".
  std::string host_work() const { return optimizer_->host_work(); }

  int64_t optimizer_steps() const;  // waits for the device
  LossScale& loss_scale() { return loss_scale_; }
  void restore(int64_t optimizer_steps);

 private:
  Tensor totals(const LossSum& sum) const;
  Tensor update(const Tensor& totals);  // over the world

  GptNeoX& model_;
  Pipeline pipeline_;
  double clip_;
  std::unique_ptr<Optimizer> optimizer_;
  LossScale loss_scale_;
  Tensor rates_;  // learning rate by successful steps
  Tensor steps_;  // 0-dim int64: successful steps
  Replay add_up_, update_;
  bool recorded_;           // units of a step are, out of which nothing may reach
  RankState said_;          // what stops_ and lacks_ hold
  Tensor stops_, lacks_;    // 0-dim doubles, 0 or 1: this rank's state
  Tensor nominal_weight_;   // 0-dim double: of this step
  double said_weight_ = 0;  // what that holds
  // [norm^2, loss, weight, stop, lacks_data, measures], with experts also their load; as in
  // StepReport
  Tensor totals_, result_;
  Tensor unscale_;  // as of gradient_scale()
  std::function<void()> before_update_ = [] {};
};

}  // namespace neox
