#include "model/tp.h"

#include <torch/csrc/autograd/custom_function.h>

namespace neox {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// A group of one gives back its argument, so that nothing is copied.
Tensor all_reduced(const Tensor& x, Communicator& tp) {
  if (tp.size() == 1) return x;
  Tensor sum = x.contiguous().clone();
  tp.all_reduce(sum);
  return sum;
}

Communicator& group(AutogradContext* context) {
  return *reinterpret_cast<Communicator*>(context->saved_data["tp"].toInt());
}

class CopyToTp : public torch::autograd::Function<CopyToTp> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t tp) {
    context->saved_data["tp"] = tp;
    return x.view_as(x);
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    return {all_reduced(grad[0], group(context)), {}};
  }
};

class SumOverTp : public torch::autograd::Function<SumOverTp> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t tp) {
    context->saved_data["tp"] = tp;
    Tensor sum = all_reduced(x, group(context));
    return sum.is_same(x) ? x.view_as(x) : sum;
  }
  static tensor_list backward(AutogradContext*, tensor_list grad) { return {grad[0], {}}; }
};

}  // namespace

Tensor copy_to_tp(const Tensor& x, Communicator& tp) {
  return CopyToTp::apply(x, reinterpret_cast<int64_t>(&tp));
}

Tensor sum_over_tp(const Tensor& x, Communicator& tp) {
  return SumOverTp::apply(x, reinterpret_cast<int64_t>(&tp));
}

}  // namespace neox
