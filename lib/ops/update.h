// What every optimizer's update takes from the step, beside the gradient.
#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>

#include "ops/element.h"

namespace neox {

// 0-dim double tensors on the device of the parameters, so that nothing waits for the host.
struct UpdateScalars {
  at::Tensor lr;      // learning rate
  at::Tensor scale;   // gradients are multiplied by it: clipping, loss scale, divisor of the loss
  at::Tensor step;    // 1 for the first update
  at::Tensor finite;  // 0: nothing changes
};

// The same as pointers to doubles on the device.
struct UpdateDeviceScalars {
  const double *lr, *scale, *step, *finite;
};
UpdateDeviceScalars device_scalars(const UpdateScalars& scalars);

// The type of all tensors of one update: float or double. Throws, naming the update, where they
// differ or there is no kernel; undefined tensors count as any type.
Element update_type(const char* name, const at::Tensor& param, const at::Tensor& grad,
                    std::initializer_list<at::Tensor> state);

}  // namespace neox
