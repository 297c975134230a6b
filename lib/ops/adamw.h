// One AdamW update (Loshchilov and Hutter, "Decoupled weight decay regularization"; bias
// corrections and the place of eps as in PyTorch and DeepSpeed's FusedAdam) over flat tensors in
// one pass.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

struct AdamWConstants {
  double beta1, beta2, eps, weight_decay;
};

// 0-dim double tensors on the device of the parameters, so that nothing waits for the host.
struct AdamWScalars {
  at::Tensor lr;      // learning rate
  at::Tensor scale;   // gradients are multiplied by it: clipping, loss scale, divisor of the loss
  at::Tensor step;    // 1 for the first update
  at::Tensor finite;  // 0: nothing changes
};

// param, m, v: flat, of one type (float or double); grad: flat, of that type. Contiguous, on one
// device.
void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v,
           const AdamWConstants& constants, const AdamWScalars& scalars);

// The CUDA half; the scalars are pointers to doubles on the device.
struct AdamWDeviceScalars {
  const double *lr, *scale, *step, *finite;
};
enum class AdamWType { kFloat, kDouble };
void adamw_cuda(void* param, const void* grad, void* m, void* v, AdamWType type, int64_t n,
                const AdamWConstants& constants, const AdamWDeviceScalars& scalars);

}  // namespace neox
