#include "model/tp.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "base/error.h"
#include "model/backward.h"
#include "ops/product.h"

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

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

ResidualSum TensorParallel::joined(const ResidualSum& input,
                                   std::initializer_list<Tensor*> weights) {
  ResidualSum same = with_work_in_backward(input, [this](const tensor_list&) { join_sum(); });
  for (Tensor* weight : weights)
    if (weight->defined()) *weight = with_later_gradient(*weight);
  return same;
}

void TensorParallel::join_sum() {
  if (SideStream::Work wait = std::exchange(sum_, nullptr)) wait();
}

Entered TensorParallel::enter(const ResidualSum& input, std::initializer_list<Tensor*> weights,
                              const EntryNorms& norms) {
  ResidualSum in = input;
  if (tp_.size() > 1 && at::GradMode::is_enabled()) {
    check(!input.added2.defined(), "two branches are added before they are summed over tp");
    in = with_work_in_backward(joined(input, weights), [this](const tensor_list& gradients) {
      check(gradients.size() == 1 || gradients[1].is_same(gradients[0]),
            "the terms of a sum have different gradients");
      start_sum([this, sum = gradients[0]]() mutable { tp_.all_reduce(sum); });
    });
  }
  auto [sum, first, second] = add_norms(in, norms.first, norms.second, norms.options);
  return {counted_once(sum), first, second};
}

Tensor TensorParallel::leave(const Tensor& partial, const Entered&) {
  if (tp_.size() == 1) return partial;
  return Leave::apply(partial, reinterpret_cast<int64_t>(&tp_));
}

Tensor TensorParallel::counted_once(const Tensor& x) {
  if (tp_.size() == 1 || !x.defined() || !at::GradMode::is_enabled()) return x;
  return CountedOnce::apply(x, tp_.rank() == 0);
}

}  // namespace neox
