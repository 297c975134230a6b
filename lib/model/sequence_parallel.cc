#include "model/sequence_parallel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

Tensor empty_tokens(const Tensor& like, int64_t tokens) {
  return at::empty({like.size(0), tokens, like.size(2)}, like.options());
}

SequenceParallel& of(AutogradContext* context) {
  return *reinterpret_cast<SequenceParallel*>(context->saved_data["tp"].toInt());
}

// Moves tokens between ranks, one way in forward and the other in backward.
template <auto kForward, auto kBackward>
class Exchange : public torch::autograd::Function<Exchange<kForward, kBackward>> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t tp) {
    context->saved_data["tp"] = tp;
    return (of(context).*kForward)(x);
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    return {(of(context).*kBackward)(grad[0].contiguous()), {}};
  }
};

using Gather = Exchange<&SequenceParallel::gathered, &SequenceParallel::start_scatter>;
using Scatter = Exchange<&SequenceParallel::scattered, &SequenceParallel::gathered>;

void empty_memory(const c10::Storage& memory) {
  memory.set_data_ptr_noswap(at::DataPtr(nullptr, memory.device()));
  memory.set_nbytes(0);
}

void move_memory(const c10::Storage& from, const c10::Storage& to) {
  to.set_nbytes(from.nbytes());
  to.set_data_ptr_noswap(from.set_data_ptr(at::DataPtr(nullptr, from.device())));
}

}  // namespace

// The memory of a gathered input and its norms, which autograd has saved: it is emptied below what
// it saved, and filled again.
class GatheredNorms {
 public:
  GatheredNorms(Communicator& tp, SideStream& side, const Tensor& part, const EntryNorms& norms)
      : tp_(tp), side_(side), part_(part.detach()), norms_(norms) {}

  // The input and the norms, in that order.
  void add(const Tensor& x) {
    if (x.defined()) memory_.push_back(x.storage());
  }
  void let_go() {
    std::ranges::for_each(memory_, empty_memory);
    gone_ = true;
  }
  // Runs beside what backward does next.
  void gather() {
    if (!gone_ || input_.defined()) return;
    input_ = empty_tokens(part_, part_.size(1) * tp_.size());
    join_ = side_.run([this] { tp_.all_gather(part_, input_); });
  }
  void renew() {
    gather();
    if (!std::exchange(gone_, false)) return;
    if (join_) join_();
    at::NoGradGuard no_grad;
    SumAndNorms all = add_norms({input_}, norms_.first, norms_.second, norms_.options);
    const Tensor made[] = {input_, all.first, all.second};
    for (size_t i = 0; i < memory_.size(); ++i) move_memory(made[i].storage(), memory_[i]);
    memory_.clear();  // what autograd saved holds it
    part_ = input_ = Tensor();
    join_ = nullptr;
  }

 private:
  Communicator& tp_;
  SideStream& side_;
  Tensor part_, input_;
  EntryNorms norms_;
  std::vector<c10::Storage> memory_;
  bool gone_ = false;
  SideStream::Work join_;
};

Entered SequenceParallel::enter(const ResidualSum& input, std::initializer_list<Tensor*> weights,
                                const EntryNorms& norms) {
  Tensor sum = total(input), x = sum;
  bool backward = at::GradMode::is_enabled();
  if (backward) x = joined({sum}, weights).x;
  Tensor all = Gather::apply(x, reinterpret_cast<int64_t>(this));
  auto [same, first, second] = add_norms({all}, norms.first, norms.second, norms.options);
  Entered entered{sum, first, second};
  if (!backward || keeps_norms_) return entered;
  entered.gathered = std::make_shared<GatheredNorms>(tp_, *side_, sum, norms);
  for (const Tensor& x : {all, first, second}) entered.gathered->add(x);
  // Before the norms' backward, and the gradients of weights behind that, read them.
  first.register_hook([gathered = entered.gathered](const Tensor&) { gathered->renew(); });
  return entered;
}

Tensor SequenceParallel::leave(const Tensor& partial, const Entered& entered) {
  if (entered.gathered) {
    entered.gathered->let_go();
    partial.register_hook([gathered = entered.gathered](const Tensor&) { gathered->gather(); });
  }
  return Scatter::apply(partial, reinterpret_cast<int64_t>(this));
}

Tensor SequenceParallel::gathered(const Tensor& part) const {
  Tensor full = empty_tokens(part, part.size(1) * tp_.size());
  tp_.all_gather(part, full);
  return full;
}

Tensor SequenceParallel::scattered(const Tensor& partial) const {
  Tensor part = empty_tokens(partial, partial.size(1) / tp_.size());
  tp_.reduce_scatter(partial, part);
  return part;
}

Tensor SequenceParallel::start_scatter(const Tensor& gradient) {
  Tensor part = empty_tokens(gradient, gradient.size(1) / tp_.size());
  start_sum([this, gradient, part]() mutable { tp_.reduce_scatter(gradient, part); });
  return part;
}

}  // namespace neox
