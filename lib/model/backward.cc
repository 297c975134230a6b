#include "model/backward.h"

#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Maybe = std::optional<Tensor>;

struct WorkHolder : torch::CustomClassHolder {
  explicit WorkHolder(std::function<void(const tensor_list&)> w) : work(std::move(w)) {}
  std::function<void(const tensor_list&)> work;
};

class Terms : public torch::autograd::Function<Terms> {
 public:
  static tensor_list forward(AutogradContext* context, const Tensor& x, const Maybe& added,
                             const Maybe& added2, const c10::intrusive_ptr<WorkHolder>& holder) {
    context->saved_data["work"] = c10::IValue::make_capsule(holder);
    tensor_list same{x.view_as(x)};
    for (const Maybe& term : {added, added2})
      if (term && term->defined()) same.push_back(term->view_as(*term));
    return same;
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    c10::static_intrusive_pointer_cast<WorkHolder>(context->saved_data["work"].toCapsule())
        ->work(grad);
    grad.resize(4);
    return grad;
  }
};

}  // namespace

ResidualSum with_work_in_backward(const ResidualSum& sum,
                                  std::function<void(const tensor_list&)> work) {
  tensor_list terms = Terms::apply(sum.x, Maybe(sum.added), Maybe(sum.added2),
                                   c10::make_intrusive<WorkHolder>(std::move(work)));
  terms.resize(3);
  return {terms[0], terms[1], sum.bias, terms[2]};
}

}  // namespace neox
