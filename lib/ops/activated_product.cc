#include "ops/activated_product.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/activation.h"
#include "ops/product.h"

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

class ActivatedProduct : public torch::autograd::Function<ActivatedProduct> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const std::optional<Tensor>& bias, const Tensor& w, int64_t activation,
                        bool is_gated) {
    Tensor b = bias.value_or(Tensor());
    context->save_for_backward({x, b, w});
    context->saved_data["activation"] = activation;
    context->saved_data["gated"] = is_gated;
    return product(activated_or_gated(x, b, static_cast<Activation>(activation), is_gated), w);
  }

  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    at::NoGradGuard no_grad;
    auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &bias = saved[1], &w = saved[2];
    auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    bool is_gated = context->saved_data["gated"].toBool();
    Tensor dw =
        product_weight_gradient(grad[0], activated_or_gated(x, bias, activation, is_gated), w);
    auto [dx, dbias] =
        activation_gradients(product_input_gradient(grad[0], w), x, bias, activation, is_gated);
    return {dx, dbias, dw, {}, {}};
  }
};

}  // namespace

Tensor activated_product(const Tensor& x, const Tensor& bias, Activation activation, bool is_gated,
                         const Tensor& w) {
  if (!x.is_cpu() || !at::GradMode::is_enabled())
    return product(activated_or_gated(x, bias, activation, is_gated), w);
  return ActivatedProduct::apply(x, std::optional<Tensor>(bias), w,
                                 static_cast<int64_t>(activation), is_gated);
}

}  // namespace neox
