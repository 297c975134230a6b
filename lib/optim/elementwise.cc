#include "optim/elementwise.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "ops/adamw.h"
#include "ops/cpu_arena.h"
#include "ops/one_moment.h"

namespace neox {
namespace {

using State = std::vector<at::Tensor>;
using Update = void (*)(const OptimizerConfig&, ParamBuffer&, const at::Tensor& grad, State&,
                        const UpdateScalars&);

// muP's share of the learning rate, by which weight decay is divided: matrices of wider layers take
// smaller steps of Adam, and all else larger ones of SGD (Yang et al., arXiv 2203.03466, table 8).
double rate_of(const OptimizerConfig& c, const ParamBuffer& buffer) {
  if (c.kind == OptimizerKind::kSgd) return buffer.layer_matrices() ? 1 : c.width;
  return buffer.layer_matrices() ? 1 / c.width : 1;
}

double decay_of(const OptimizerConfig& c, const ParamBuffer& buffer) {
  return buffer.decay() ? c.weight_decay / rate_of(c, buffer) : 0;
}

void update_adam(const OptimizerConfig& c, ParamBuffer& buffer, const at::Tensor& grad,
                 State& state, const UpdateScalars& scalars) {
  bool coupled = c.decay == DecayKind::kCoupled;
  double decay = decay_of(c, buffer);
  adamw(buffer.master(), grad, state[0], state[1],
        {.beta1 = c.beta1,
         .beta2 = c.beta2,
         .eps = c.eps,
         .weight_decay = coupled ? 0 : decay,
         .l2 = coupled ? decay : 0,
         .bias_correction = c.bias_correction ? 1.0 : 0.0},
        scalars, buffer.take_copy());
}

void update_sgd(const OptimizerConfig& c, ParamBuffer& buffer, const at::Tensor& grad, State& state,
                const UpdateScalars& scalars) {
  at::Tensor momentum = state.empty() ? at::Tensor() : state[0];
  sgd(buffer.master(), grad, momentum,
      {.momentum = c.momentum,
       .dampening = c.dampening,
       .weight_decay = decay_of(c, buffer),
       .nesterov = c.nesterov ? Nesterov::kYes : Nesterov::kNo},
      scalars);
}

void update_lion(const OptimizerConfig& c, ParamBuffer& buffer, const at::Tensor& grad,
                 State& state, const UpdateScalars& scalars) {
  lion(buffer.master(), grad, state[0], {c.beta1, c.beta2, decay_of(c, buffer)}, scalars);
}

Update update_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return update_sgd;
    case OptimizerKind::kLion:
      return update_lion;
    default:
      return update_adam;
  }
}

}  // namespace

std::vector<const char*> elementwise_state(const OptimizerConfig& config) {
  if (config.kind == OptimizerKind::kLion) return {"lion_m"};
  if (config.kind != OptimizerKind::kSgd) return {"adam_m", "adam_v"};
  if (config.momentum == 0) return {};
  return {"sgd_m"};
}

UpdateScalars scalars_on(at::Device device, const UpdateScalars& s) {
  return {s.lr.to(device), s.scale.to(device), s.step.to(device), s.finite.to(device)};
}

Elementwise::Elementwise(const OptimizerConfig& config, std::vector<ParamBuffer*> buffers)
    : config_(config), buffers_(std::move(buffers)), names_(elementwise_state(config)) {
  for (ParamBuffer* buffer : buffers_) {
    State& state = state_.emplace_back();
    for (size_t i = 0; i < names_.size(); ++i)
      state.push_back(untouched_zeros(buffer->master().numel(), buffer->master().options()));
  }
}

void Elementwise::step(const UpdateScalars& scalars) {
  at::NoGradGuard no_grad;
  if (buffers_.empty()) return;
  Update update = update_of(config_.kind);
  UpdateScalars there = scalars_on(buffers_.front()->master().device(), scalars);
  for (size_t i = 0; i < buffers_.size(); ++i) {
    ParamBuffer& buffer = *buffers_[i];
    at::Tensor grad = buffer.grad().to(buffer.master().options());
    UpdateScalars own = there;
    if (double rate = rate_of(config_, buffer); rate != 1) own.lr = there.lr * rate;
    update(config_, buffer, grad, state_[i], own);
  }
}

std::string Elementwise::host_work() const {
  return config_.place == StatePlace::kHost ? "the optimizer's state is in host memory" : "";
}

std::vector<std::pair<std::string, at::Tensor>> Elementwise::state(size_t i) const {
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (size_t k = 0; k < names_.size(); ++k) named.emplace_back(names_[k], state_[i][k]);
  return named;
}

}  // namespace neox
