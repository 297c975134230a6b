// LayerNorm and RMSNorm over the last dimension, with what lies around them in a residual network:
// the sum that is normed is formed in the same pass, and two norms of one sum share its statistics.
// Gradients of weights are summed in a fixed order, which does not depend on the number of threads,
// but on a GPU on its number of multiprocessors.
#pragma once
#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "ops/element.h"

namespace neox {

struct NormOptions {
  Norm kind = Norm::kLayerNorm;
  double eps = 1e-5;
};

// C of tensors on a GPU is not more.
inline constexpr int kMostColumnsOnGpus = 16384;

struct NormWeight {
  at::Tensor weight, bias = {};  // [C] of x's type; bias may be undefined
};

// x [..., C]. Layer: (x - mean) / sqrt(variance + eps) weight + bias; RMS: x / sqrt(mean of squares
// + eps) weight + bias. Statistics are float, of double double. Differentiable.
at::Tensor norm(const at::Tensor& x, const NormWeight& weight, const NormOptions& options);

// x + ((added + added2) + bias): [..., C], the bias [C]. All but x may be undefined, added where
// added2 is.
struct ResidualSum {
  at::Tensor x, added = {}, bias = {}, added2 = {};
};

// The sum, rounded to its type as if one were added after the other. Where there is nothing to add,
// x.
at::Tensor total(const ResidualSum& sum);

struct SumAndNorms {
  at::Tensor sum, first, second;
};

// The sum and one norm of it, or two (where second.weight is defined), with the same bits as
// total(sum) and the norms of that have.
SumAndNorms add_norms(const ResidualSum& sum, const NormWeight& first, const NormWeight& second,
                      const NormOptions& options);

// What the kernels take; null where a tensor is missing. Statistics are float, or double for
// double.
struct NormRows {
  Element type;
  int64_t rows, columns;
  NormOptions options;
  int norms;  // 0, 1 or 2
  const void *x, *added, *added2, *bias;
  const void *weight[2], *offset[2];
  void *sum, *out[2];  // sum: null where nothing is added
  void *mean, *scale;  // [rows]: 1 / deviation
};

// The columns of weights' gradients are first summed over each part of the rows: partial [parts,
// sums, columns] of the statistics' type; sums: weight and bias of each norm, then the added bias
// if it has a gradient.
struct NormGradientRows {
  Element type;
  int64_t rows, columns, parts, sums;
  Norm kind;
  int norms;
  const void *sum, *mean, *scale;
  const void *weight[2], *dout[2], *dsum;  // dout and dsum may be null
  void *dx, *partial;
};

// The CUDA halves.
void norm_cuda(const NormRows& rows);
void norm_gradient_cuda(const NormGradientRows& rows);
// How many parts of the rows have sums of their own there.
int64_t norm_parts_cuda(int64_t rows, int64_t columns);

}  // namespace neox
