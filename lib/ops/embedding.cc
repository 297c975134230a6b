#include "ops/embedding.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/leaf_gradient.h"

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

class EmbeddingRows : public torch::autograd::Function<EmbeddingRows> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& weight, const Tensor& rows) {
    context->save_for_backward({weight, rows});
    return at::embedding(weight, rows);
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto saved = context->get_saved_variables();
    Tensor kept = kept_gradient(saved[0]), dy = grad[0].reshape({-1, saved[0].size(1)});
    kept.index_add_(0, saved[1].flatten(), dy.to(kept.scalar_type()));
    return {Tensor(), Tensor()};
  }
};

}  // namespace

// ATen's gradient is a table of its own, mostly zeros, that is added to the kept one.
at::Tensor embedding_rows(const Tensor& weight, const Tensor& rows) {
  bool straight = weight.is_cpu() && at::GradMode::is_enabled() && kept_gradient(weight).defined();
  return straight ? EmbeddingRows::apply(weight, rows) : at::embedding(weight, rows);
}

}  // namespace neox
