#include "train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>

#include "optim/schedule.h"

namespace neox {

TrainStep::TrainStep(GptNeoX& model, const Config& config, double nominal_weight)
    : model_(model),
      clip_(config.optimizer.gradient_clipping),
      nominal_weight_(nominal_weight),
      optimizer_(make_optimizer(config.optimizer, model.buffers(), model.mesh())),
      loss_scale_(config.precision, model.hidden_options().device()) {
  at::Device device = model.hidden_options().device();
  rates_ = at::tensor(learning_rates(config.schedule, config.train.iters), at::kDouble).to(device);
  steps_ = at::zeros({}, at::dtype(at::kLong).device(device));
}

Tensor TrainStep::run(int64_t microbatches, const BatchSource& batches, bool stop) {
  RECORD_USER_SCOPE("step");
  // The seed keeps half-precision gradients in range; update() replaces the nominal divisor by the
  // true one.
  LossSum sum =
      train_microbatches(model_, microbatches, batches, loss_scale_.value() / nominal_weight_);
  at::NoGradGuard no_grad;
  Tensor norm = at::zeros_like(sum.loss), asked = at::full_like(sum.loss, stop ? 1.0 : 0.0);
  for (ParamBuffer* buffer : model_.buffers()) norm += buffer->squared_norm();
  if (model_.mesh().tp().rank() != 0)
    sum.loss.zero_(), sum.weight.zero_();  // tp ranks hold the same samples
  Tensor totals = at::stack({norm, sum.loss, sum.weight, asked});
  model_.mesh().world().all_reduce(totals);
  before_update_();
  return update(totals);
}

Tensor TrainStep::update(const Tensor& totals) {
  RECORD_USER_SCOPE("update");
  Tensor weight = totals[2].clamp_min(1e-20), loss = totals[1] / weight;
  Tensor unscale = nominal_weight_ / (weight * loss_scale_.value());
  Tensor norm = totals[0].sqrt() * unscale;
  Tensor finite = at::isfinite(norm).logical_and_(at::isfinite(loss)).to(at::kDouble);
  Tensor scale = unscale;
  if (clip_ > 0) scale = unscale * (clip_ / (norm + 1e-6)).clamp_max(1);
  Tensor lr = rates_.index_select(0, steps_.clamp_max(rates_.numel() - 1).view({1})).squeeze(0);
  Tensor result = at::stack({loss, norm, lr, loss_scale_.value(), finite, totals[3]});
  optimizer_->step({lr, scale, (steps_ + 1).to(at::kDouble), finite});
  steps_ += finite.to(at::kLong);
  loss_scale_.update(finite);
  publish();
  return result;
}

StepReport TrainStep::read(const Tensor& result) {
  Tensor host = result.cpu();
  const auto* v = host.const_data_ptr<double>();
  return {v[0], v[1], v[2], v[3], v[4] != 0, v[5] != 0};
}

void TrainStep::publish() {
  for (ParamBuffer* buffer : model_.buffers()) buffer->publish();
}

std::vector<StateChunk> TrainStep::owned() {
  std::vector<StateChunk> chunks;
  auto buffers = model_.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    auto placements = buffers[i]->placements(0, buffers[i]->chunk_size());
    chunks.push_back({buffers[i]->name(), "param", buffers[i]->master(), placements});
    for (const auto& [state, tensor] : optimizer_->state(i))
      chunks.push_back({buffers[i]->name(), state, tensor, placements});
  }
  return chunks;
}

std::vector<StateChunk> TrainStep::written() {
  std::vector<StateChunk> chunks = owned();
  auto chunk = chunks.begin();
  for (ParamBuffer* buffer : model_.buffers()) {
    auto [from, to] = buffer->written();
    for (; chunk != chunks.end() && chunk->buffer == buffer->name(); ++chunk) {
      chunk->data = chunk->data.narrow(0, from, to - from);
      chunk->placements = buffer->placements(from, to);
    }
  }
  return chunks;
}

int64_t TrainStep::optimizer_steps() const { return steps_.item<int64_t>(); }

void TrainStep::restore(int64_t optimizer_steps) {
  steps_.fill_(optimizer_steps);
  optimizer_->begin(optimizer_steps);
}

}  // namespace neox
