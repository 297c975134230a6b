#include "model/recompute.h"

#include <torch/csrc/autograd/custom_function.h>

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Part = std::function<Tensor(const Tensor&)>;

struct PartHolder : torch::CustomClassHolder {
  explicit PartHolder(Part p) : part(std::move(p)) {}
  Part part;
};

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        c10::intrusive_ptr<PartHolder> holder) {
    context->save_for_backward({x});
    context->saved_data["part"] = c10::IValue::make_capsule(holder);
    return holder->part(x);
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto holder =
        c10::static_intrusive_pointer_cast<PartHolder>(context->saved_data["part"].toCapsule());
    Tensor x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    {
      at::AutoGradMode with_grad(true);
      holder->part(x).backward(grad[0]);
    }
    return {x.grad(), {}};
  }
};

}  // namespace

Tensor recomputed(const Tensor& x, const Part& part) {
  return Recomputed::apply(x, c10::make_intrusive<PartHolder>(part));
}

}  // namespace neox
