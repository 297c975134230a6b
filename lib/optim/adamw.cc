#include "optim/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

namespace neox {

AdamW::AdamW(const OptimizerConfig& config, std::vector<ParamBuffer*> buffers)
    : config_(config), buffers_(std::move(buffers)) {
  for (ParamBuffer* buffer : buffers_) {
    m_.push_back(at::zeros_like(buffer->master()));
    v_.push_back(at::zeros_like(buffer->master()));
  }
}

void AdamW::step(const AdamWScalars& scalars) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    ParamBuffer& buffer = *buffers_[i];
    AdamWConstants constants{config_.beta1, config_.beta2, config_.eps,
                             buffer.decay() ? config_.weight_decay : 0};
    at::Tensor grad = buffer.grad().to(buffer.master().scalar_type());
    adamw(buffer.master(), grad, m_[i], v_[i], constants, scalars);
  }
}

std::vector<std::pair<std::string, at::Tensor>> AdamW::state(size_t i) const {
  return {{"adam_m", m_[i]}, {"adam_v", v_[i]}};
}

}  // namespace neox
