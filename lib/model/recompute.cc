#include "model/recompute.h"

#include <torch/csrc/autograd/custom_function.h>

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Part = std::function<Tensor(const Tensor&, const Tensor&)>;

struct PartHolder : torch::CustomClassHolder {
  explicit PartHolder(Part p) : part(std::move(p)) {}
  Part part;
};

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const std::optional<Tensor>& shared,
                        c10::intrusive_ptr<PartHolder> holder) {
    Tensor given = shared.value_or(Tensor());
    context->save_for_backward({x, given});
    context->saved_data["part"] = c10::IValue::make_capsule(holder);
    return holder->part(x, given);
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto holder =
        c10::static_intrusive_pointer_cast<PartHolder>(context->saved_data["part"].toCapsule());
    auto saved = context->get_saved_variables();
    Tensor x = leaf_of(saved[0]), shared = leaf_of(saved[1]);
    {
      at::AutoGradMode with_grad(true);
      holder->part(x, shared).backward(grad[0]);
    }
    return {x.grad(), shared.defined() ? shared.grad() : shared, {}};
  }

 private:
  static Tensor leaf_of(const Tensor& x) {
    return x.defined() ? x.detach().set_requires_grad(true) : x;
  }
};

}  // namespace

Tensor recomputed(const Tensor& x, const Tensor& shared, const Part& part) {
  return Recomputed::apply(x, std::optional<Tensor>(shared), c10::make_intrusive<PartHolder>(part));
}

}  // namespace neox
