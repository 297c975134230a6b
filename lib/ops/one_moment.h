// Updates that keep at most one moment of an element: SGD with momentum (as torch.optim.SGD) and
// Lion (Chen et al. 2023, arXiv 2302.06675, as GPT-NeoX's megatron/optimizers.py), over flat
// tensors in one pass.
#pragma once
#include "ops/update.h"

namespace neox {

enum class Nesterov { kNo, kYes };

struct SgdConstants {
  double momentum = 0, dampening = 0;  // dampening does not apply to the first update
  double weight_decay = 0;             // added to the gradient, times the parameter
  Nesterov nesterov = Nesterov::kNo;
};

struct LionConstants {
  double beta1, beta2;
  double weight_decay = 0;  // decoupled
};

// param, m: flat, of one type (float or double); grad: flat, of that type. Contiguous, on one
// device. m is undefined for SGD without momentum, else zeros before the first update.
void sgd(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, const SgdConstants& constants,
         const UpdateScalars& scalars);
void lion(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, const LionConstants& constants,
          const UpdateScalars& scalars);

// What the kernels take; m may be null for SGD.
struct OneMomentRange {
  Element type;  // float or double
  int64_t n;
  void* param;
  const void* grad;
  void* m;
};

// The CUDA halves.
void sgd_cuda(const OneMomentRange& range, const SgdConstants& constants,
              const UpdateDeviceScalars& scalars);
void lion_cuda(const OneMomentRange& range, const LionConstants& constants,
               const UpdateDeviceScalars& scalars);

}  // namespace neox
