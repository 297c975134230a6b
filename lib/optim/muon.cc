#include "optim/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "ops/cpu_arena.h"
#include "ops/orthogonal.h"

namespace neox {
namespace {

// What AdamW is told for the parameters that are no matrices of layers.
OptimizerConfig adam_of(const OptimizerConfig& config) {
  OptimizerConfig adam = config;
  adam.kind = OptimizerKind::kAdam;
  return adam;
}

const ParamSpec& spec_of(const ParamBuffer& buffer, const std::string& name) {
  return *std::ranges::find(buffer.specs(), name, &ParamSpec::name);
}

// parts: [tp, chunk], this placement's elements of each rank's chunk.
at::Tensor whole_matrix(const at::Tensor& parts, const Placement& p, int64_t dim) {
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& part : parts.narrow(1, p.offset, p.box.numel()).unbind(0))
    pieces.push_back(part.reshape(p.box.extent));
  return at::cat(pieces, dim);
}

}  // namespace

Muon::Muon(const OptimizerConfig& config, std::vector<ParamBuffer*> buffers, Communicator& tp)
    : config_(config), tp_(tp), buffers_(std::move(buffers)) {
  std::vector<ParamBuffer*> others;
  for (ParamBuffer* buffer : buffers_) {
    bool matrices = buffer->layer_matrices();
    place_.push_back(matrices ? matrices_.size() : others.size());
    if (matrices)
      matrices_.push_back(
          {buffer, untouched_zeros(buffer->master().numel(), buffer->master().options())});
    else
      others.push_back(buffer);
  }
  others_ = std::make_unique<Elementwise>(adam_of(config), std::move(others));
}

void Muon::step(const UpdateScalars& scalars) {
  at::NoGradGuard no_grad;
  UpdateScalars adam = scalars, muon = scalars;
  adam.lr = scalars.lr * config_.adam_lr_factor;
  muon.lr = scalars.lr * config_.muon_lr_factor;
  others_->step(adam);
  for (Matrices& matrices : matrices_) update(matrices, muon);
}

void Muon::update(Matrices& matrices, const UpdateScalars& s) {
  ParamBuffer& buffer = *matrices.buffer;
  at::Tensor& master = buffer.master();
  at::Tensor grad = buffer.grad().to(master.options()) * s.scale;
  at::Tensor momentum = matrices.momentum.lerp(grad, 1 - config_.momentum);
  at::Tensor step = orthogonal_step(buffer, grad.lerp(momentum, config_.momentum));  // Nesterov's
  at::Tensor next = master * (1 - s.lr * config_.weight_decay) - step * s.lr, good = s.finite != 0;
  master.copy_(at::where(good, next, master));
  matrices.momentum.copy_(at::where(good, momentum, matrices.momentum));
}

at::Tensor Muon::orthogonal_step(ParamBuffer& buffer, const at::Tensor& direction) {
  at::Tensor all = at::empty({tp_.size() * direction.numel()}, direction.options());
  tp_.all_gather(direction, all);
  at::Tensor parts = all.view({tp_.size(), direction.numel()});
  at::Tensor step = at::zeros_like(direction);
  for (const Placement& p : buffer.placements()) {
    int64_t dim = *spec_of(buffer, p.name).tp_dim;
    auto d = static_cast<size_t>(dim);
    at::Tensor whole = orthogonalized(whole_matrix(parts, p, dim));
    double shape = static_cast<double>(p.shape.end()[-2]) / static_cast<double>(p.shape.back());
    at::Tensor mine = whole.narrow(dim, p.box.start[d], p.box.extent[d]);
    step.narrow(0, p.offset, p.box.numel())
        .view(p.box.extent)
        .copy_(mine * std::sqrt(std::max(1.0, shape)));
  }
  return step;
}

std::vector<std::pair<std::string, at::Tensor>> Muon::state(size_t i) const {
  if (!buffers_[i]->layer_matrices()) return others_->state(place_[i]);
  return {{"muon_m", matrices_[place_[i]].momentum}};
}

}  // namespace neox
