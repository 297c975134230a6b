#include "ops/update.h"

#include "base/error.h"

namespace neox {

UpdateDeviceScalars device_scalars(const UpdateScalars& s) {
  return {s.lr.const_data_ptr<double>(), s.scale.const_data_ptr<double>(),
          s.step.const_data_ptr<double>(), s.finite.const_data_ptr<double>()};
}

Element update_type(const char* name, const at::Tensor& param, const at::Tensor& grad,
                    std::initializer_list<at::Tensor> state) {
  at::ScalarType type = param.scalar_type();
  check(grad.scalar_type() == type, name, ": parameters of type ", type, " with gradients of type ",
        grad.scalar_type());
  for (const at::Tensor& t : state)
    check(!t.defined() || t.scalar_type() == type, name, ": parameters of type ", type,
          " with moments of type ", t.defined() ? t.scalar_type() : type);
  check(type == at::kFloat || type == at::kDouble, name, ": no kernel for type ", type);
  return type == at::kFloat ? Element::kFloat : Element::kDouble;
}

}  // namespace neox
