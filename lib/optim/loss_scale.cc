#include "optim/loss_scale.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

namespace neox {

LossScale::LossScale(const PrecisionConfig& config, at::Device device)
    : config_(config), dynamic_(config.type == Precision::kFp16 && config.static_loss_scale == 0) {
  double start = dynamic_                          ? config.initial_loss_scale
                 : config.type == Precision::kFp16 ? config.static_loss_scale
                                                   : 1;
  auto scalar = [&](double value) {
    return at::full({}, value, at::dtype(at::kDouble).device(device));
  };
  scale_ = scalar(start);
  growth_ = scalar(0);
  hysteresis_ = scalar(static_cast<double>(std::max<int64_t>(config.hysteresis, 1)));
}

void LossScale::update(const at::Tensor& finite, const at::Tensor& counts) {
  if (!dynamic_) return;
  bool waits = config_.hysteresis > 0;
  double window = static_cast<double>(config_.loss_scale_window), before = waits ? 0 : 1;
  at::Tensor good = finite != 0;
  at::Tensor patient = waits ? hysteresis_ > 1 : at::zeros_like(good);
  at::Tensor grown = growth_ + 1, full = grown >= window + before;
  at::Tensor after_overflow =
      at::where(patient, scale_, (scale_ / 2).clamp_min(config_.min_loss_scale));
  at::Tensor next_scale = at::where(good, at::where(full, scale_ * 2, scale_), after_overflow);
  at::Tensor next_hysteresis =
      at::where(good, at::where(full, std::max<double>(config_.hysteresis, 1), hysteresis_),
                at::where(patient, hysteresis_ - 1, hysteresis_));
  at::Tensor next_growth = at::where(good, at::where(full, before, grown), 0.0);
  growth_.copy_(at::where(counts, next_growth, growth_));
  scale_.copy_(at::where(counts, next_scale, scale_));
  hysteresis_.copy_(at::where(counts, next_hysteresis, hysteresis_));
}

LossScale::State LossScale::state() const {
  return {scale_.item<double>(), static_cast<int64_t>(growth_.item<double>()),
          static_cast<int64_t>(hysteresis_.item<double>())};
}

void LossScale::restore(const State& state) {
  // Without hysteresis: of a run in another precision, which has no scale.
  if (!dynamic_ || state.hysteresis == 0) return;
  scale_.fill_(state.scale);
  growth_.fill_(static_cast<double>(state.growth));
  hysteresis_.fill_(static_cast<double>(state.hysteresis));
}

}  // namespace neox
