// What a run can measure beside its losses, for metrics: norms of single tensors, and the gradient
// noise scale. On any layout each element counts once.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "metrics/event_file.h"
#include "train/step.h"

namespace neox {

class TensorNorms {
 public:
  TensorNorms(const DiagnosticsConfig& config, const ModelConfig& model);

  // Collective over the world. Of what the last step left, equal on all ranks:
  //   parameter_norms/NAME  gradient_norms/NAME  pct_grad_zeros/NAME
  //   optimizer_state_norms/NAME_STATE
  // Gradients are those of the mean loss before clipping, and parameters what they have led to.
  Scalars of(TrainStep& step, Communicator& world) const;

 private:
  DiagnosticsConfig config_;
  std::vector<std::string> names_;  // of all parameters, in the model's order
};

// The gradient noise scale of McCandlish et al., "An Empirical Model of Large-Batch Training"
// (arXiv 1812.06162), appendix A.1: the batch size, in samples, at which the noise of a gradient is
// as large as the gradient. Of `steps` steps the squares of single gradients are compared with that
// of their mean, and both sides of the quotient are averages with a decay of 0.99 over such
// estimates (GPT-NeoX, megatron/gradient_noise_scale).
class GradientNoise {
 public:
  // batch: samples of a step.
  GradientNoise(int64_t steps, int64_t batch, bool on_host)
      : steps_(steps), batch_(static_cast<double>(batch)), on_host_(on_host) {}

  // Collective over the world, after each step: the new estimate where one is due, for which it
  // waits for the device. None where a step of it was not finite, or all is noise.
  std::optional<double> add(TrainStep& step, Communicator& world);

 private:
  void remember(TrainStep& step);

  int64_t steps_;
  double batch_;
  bool on_host_;
  int64_t added_ = 0;              // steps, to
  std::vector<at::Tensor> sums_;   // of gradients, what this rank writes of them, and
  at::Tensor squares_;             // 0-dim double: of the squares of their norms
  double noise_ = 0, signal_ = 0;  // averages: the trace of the covariance, the square of the mean
};

// What of both a run asks for.
class Diagnostics {
 public:
  // batch: samples of a step.
  Diagnostics(const TrainConfig& config, const ModelConfig& model, int64_t batch);

  // Collective over the world, after each step.
  Scalars after(int64_t iteration, TrainStep& step, Communicator& world);

 private:
  int64_t interval_;  // steps between norms
  std::optional<TensorNorms> norms_;
  std::optional<GradientNoise> noise_;
};

}  // namespace neox
