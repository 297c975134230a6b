// The loss scale of fp16 training, on the device: dynamic as DeepSpeed's DynamicLossScaler, which
// it has with ZeRO, or, without hysteresis, as its FP16_Optimizer
// (runtime/fp16/fused_optimizer.py); or static, or 1 for other types.
#pragma once
#include <ATen/core/Tensor.h>

#include "config/config.h"

namespace neox {

class LossScale {
 public:
  LossScale(const PrecisionConfig& config, at::Device device);
  const at::Tensor& value() const { return scale_; }  // 0-dim double
  // After a step: finite is a 0-dim double, 0 or 1. An overflow uses up the hysteresis, then halves
  // the scale; a window of finite steps doubles it, without hysteresis one behind a window. counts,
  // a 0-dim boolean: false leaves all as it is.
  void update(const at::Tensor& finite, const at::Tensor& counts);

  struct State {
    double scale = 1;
    int64_t growth = 0, hysteresis = 0;
  };
  bool is_dynamic() const { return dynamic_; }
  State state() const;  // waits for the device
  void restore(const State& state);

 private:
  PrecisionConfig config_;
  bool dynamic_;
  at::Tensor scale_, growth_, hysteresis_;  // 0-dim doubles
};

}  // namespace neox
