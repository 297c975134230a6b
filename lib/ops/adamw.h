// One update of AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization"; bias
// corrections and the place of eps as in PyTorch and DeepSpeed's FusedAdam), or of Adam with the
// decay in its gradient, over flat tensors in one pass.
#pragma once
#include <vector>

#include "ops/element.h"
#include "ops/update.h"

namespace neox {

struct AdamWConstants {
  double beta1, beta2, eps, weight_decay;
  double l2 = 0;               // added to the gradient, times the parameter (adam_w_mode: false)
  double bias_correction = 1;  // 0: the moments as they are
};

// param, m, v: flat, of one type (float or double); grad: flat, of that type. Contiguous, on one
// device. copy: undefined, or flat, float, half or bfloat16: takes the new parameters, rounded, in
// the same pass; nothing where nothing changes.
void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v,
           const AdamWConstants& constants, const UpdateScalars& scalars,
           const at::Tensor& copy = {});

// A flat tensor whose squares count `weight` times.
struct WeightedSquares {
  at::Tensor x;
  double weight = 1;
};

// The sum of the squares of one or more of them on one device, 0-dim double there: summed in
// double, in an order that depends on the sizes alone, and on a GPU on which x begin at multiples
// of 16 bytes.
at::Tensor sum_of_squares(const std::vector<WeightedSquares>& tensors);

// What the kernels take; copy may be null.
struct AdamWRange {
  Element type;  // float or double
  int64_t n;
  void* param;
  const void* grad;
  void *m, *v, *copy;
  Element copy_type;
};

// A double for each of `parts` parts of x.
struct SquaresRange {
  const void* x;
  Element type;
  int64_t n;
  double weight;
  double* sums;
  int64_t parts;
};

// The CUDA halves.
void adamw_cuda(const AdamWRange& range, const AdamWConstants& constants,
                const UpdateDeviceScalars& scalars);
void sum_of_squares_cuda(const SquaresRange& range);
int64_t sum_of_squares_parts_cuda(int64_t n);

}  // namespace neox
