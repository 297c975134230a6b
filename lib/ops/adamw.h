// One update of AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization"; bias
// corrections and the place of eps as in PyTorch and DeepSpeed's FusedAdam), or of Adam with the
// decay in its gradient, over flat tensors in one pass.
#pragma once
#include "ops/update.h"

namespace neox {

struct AdamWConstants {
  double beta1, beta2, eps, weight_decay;
  double l2 = 0;               // added to the gradient, times the parameter (adam_w_mode: false)
  double bias_correction = 1;  // 0: the moments as they are
};

// param, m, v: flat, of one type (float or double); grad: flat, of that type. Contiguous, on one
// device.
void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v,
           const AdamWConstants& constants, const UpdateScalars& scalars);

// The CUDA half.
void adamw_cuda(void* param, const void* grad, void* m, void* v, UpdateType type, int64_t n,
                const AdamWConstants& constants, const UpdateDeviceScalars& scalars);

}  // namespace neox
