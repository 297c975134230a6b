#include "optim/one_bit_adam.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "ops/adamw.h"
#include "ops/cpu_arena.h"

namespace neox {

OneBitAdam::OneBitAdam(const OptimizerConfig& config, std::vector<ParamBuffer*> buffers, Mesh& mesh)
    : config_(config), buffers_(std::move(buffers)), replicas_(mesh.replicate()) {
  check_usage(mesh.shard().size() == 1,
              "1-bit Adam compresses what whole replicas send; set zero_optimization.stage: 0");
  for (ParamBuffer* buffer : buffers_) {
    m_.push_back(untouched_zeros(buffer->master().numel(), buffer->master().options()));
    v_.push_back(untouched_zeros(buffer->master().numel(), buffer->master().options()));
  }
}

void OneBitAdam::begin(int64_t steps) {
  if (steps >= config_.freeze_step && !frozen_) freeze();
}

void OneBitAdam::freeze() {
  frozen_ = true;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i]->leave_unsummed(replicas_);
    means_.emplace_back(replicas_, m_[i].numel(), m_[i].options());
  }
}

void OneBitAdam::step(const UpdateScalars& s) {
  at::NoGradGuard no_grad;
  if (s.finite.item<double>() == 0) return;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (frozen_) {
      update_frozen(i, s);
      continue;
    }
    ParamBuffer& buffer = *buffers_[i];
    at::Tensor grad = buffer.grad().to(buffer.master().options());
    adamw(buffer.master(), grad, m_[i], v_[i],
          {.beta1 = config_.beta1,
           .beta2 = config_.beta2,
           .eps = config_.eps,
           .weight_decay = buffer.decay() ? config_.weight_decay : 0,
           .bias_correction = 0},
          s, buffer.take_copy());
  }
  begin(static_cast<int64_t>(s.step.item<double>()));
}

void OneBitAdam::update_frozen(size_t i, const UpdateScalars& s) {
  ParamBuffer& buffer = *buffers_[i];
  at::Tensor& master = buffer.master();
  at::Tensor grad =
      buffer.grad().to(master.options()) * (s.scale * static_cast<double>(replicas_.size()));
  at::Tensor momentum = m_[i].lerp(grad, 1 - config_.beta1);
  // One rank sends nothing, so nothing is lost.
  m_[i].copy_(replicas_.size() == 1 ? momentum : means_[i](momentum));
  at::Tensor step = m_[i] / (v_[i].sqrt() + config_.eps);
  if (buffer.decay()) step = step + config_.weight_decay * master;
  master.copy_(master - step * s.lr);
}

std::vector<std::pair<std::string, at::Tensor>> OneBitAdam::state(size_t i) const {
  return {{"adam_m", m_[i]}, {"adam_v", v_[i]}};
}

}  // namespace neox
