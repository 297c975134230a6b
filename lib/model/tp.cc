#include "model/tp.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "ops/product.h"

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// The terms of a sum, with whose gradients something is done.
template <void (TensorParallel::*kDo)(const tensor_list&)>
class Terms : public torch::autograd::Function<Terms<kDo>> {
 public:
  static tensor_list forward(AutogradContext* context, const Tensor& x,
                             const std::optional<Tensor>& added, int64_t tp) {
    context->saved_data["tp"] = tp;
    tensor_list same{x.view_as(x)};
    if (added) same.push_back(added->view_as(*added));
    return same;
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    (reinterpret_cast<TensorParallel*>(context->saved_data["tp"].toInt())->*kDo)(grad);
    return {grad[0], grad.size() > 1 ? grad[1] : Tensor(), {}};
  }
};

template <void (TensorParallel::*kDo)(const tensor_list&)>
ResidualSum through(const ResidualSum& sum, TensorParallel& tp) {
  auto added = sum.added.defined() ? std::optional(sum.added) : std::nullopt;
  tensor_list terms = Terms<kDo>::apply(sum.x, added, reinterpret_cast<int64_t>(&tp));
  return {terms[0], added ? terms[1] : Tensor(), sum.bias};
}

class CountedOnce : public torch::autograd::Function<CountedOnce> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, bool here) {
    context->saved_data["here"] = here;
    return x.view_as(x);
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    return {context->saved_data["here"].toBool() ? grad[0] : Tensor(), {}};
  }
};

class Leave : public torch::autograd::Function<Leave> {
 public:
  static Tensor forward(AutogradContext* context, Tensor x, int64_t tp) {
    reinterpret_cast<Communicator*>(tp)->all_reduce(x);
    context->mark_dirty({x});
    return x;
  }
  static tensor_list backward(AutogradContext*, tensor_list grad) { return {grad[0], {}}; }
};

}  // namespace

TensorParallel::TensorParallel(Communicator& tp, std::shared_ptr<SideStream> side)
    : tp_(tp), side_(std::move(side)) {}

ResidualSum TensorParallel::enter(const ResidualSum& input,
                                  std::initializer_list<Tensor*> weights) {
  if (tp_.size() == 1 || !at::GradMode::is_enabled()) return input;
  check(!input.added2.defined(), "two branches are added before they are summed over tp");
  ResidualSum joined = through<&TensorParallel::join_sum>(input, *this);
  for (Tensor* weight : weights) *weight = with_later_gradient(*weight);
  return through<&TensorParallel::start_sum>(joined, *this);
}

void TensorParallel::start_sum(const tensor_list& gradients) {
  check(gradients.size() == 1 || gradients[1].is_same(gradients[0]),
        "the terms of a sum have different gradients");
  sum_ = side_->run([this, sum = gradients[0]]() mutable { tp_.all_reduce(sum); });
}

void TensorParallel::join_sum(const tensor_list&) {
  if (SideStream::Work wait = std::exchange(sum_, nullptr)) wait();
}

Tensor TensorParallel::counted_once(const Tensor& x) {
  if (tp_.size() == 1 || !x.defined() || !at::GradMode::is_enabled()) return x;
  return CountedOnce::apply(x, tp_.rank() == 0);
}

Tensor TensorParallel::leave(const Tensor& partial) {
  if (tp_.size() == 1) return partial;
  return Leave::apply(partial, reinterpret_cast<int64_t>(&tp_));
}

}  // namespace neox
