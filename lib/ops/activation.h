// What stands between the two products of an MLP: bias, activation and, in gated ones (SwiGLU,
// GeGLU), the product with the other half, in one pass. Only the first product's result is kept for
// the backward pass, which gives the bias's gradient along with its own, summed in a fixed order.
#pragma once
#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "ops/element.h"

namespace neox {

// activation(x + bias): x [..., F], bias [F] or undefined. Differentiable.
at::Tensor activated(const at::Tensor& x, const at::Tensor& bias, Activation activation);

// activation(gate) up [..., F] of x + bias = {gate, up} [..., F, 2], flat: x [..., 2 F].
at::Tensor gated(const at::Tensor& x, const at::Tensor& bias, Activation activation);

// One of the two.
at::Tensor activated_or_gated(const at::Tensor& x, const at::Tensor& bias, Activation activation,
                              bool is_gated);

// The gradients of x and, where there is one, of the bias from that of the result.
struct ActivationGradients {
  at::Tensor x, bias;
};
ActivationGradients activation_gradients(const at::Tensor& dout, const at::Tensor& x,
                                         const at::Tensor& bias, Activation activation, bool gated);

// What the kernels take. Columns are the result's. Backward reads dout and writes dx of x's shape;
// partial [parts, columns of x], float or of double double, takes the bias's gradient summed over
// each part of the rows; null: none.
struct ActivationRows {
  Element type;
  Activation activation;
  bool gated;
  int64_t rows, columns, parts;
  const void *x, *bias, *dout;
  void *out, *dx, *partial;
};

// The CUDA halves.
void activation_cuda(const ActivationRows& rows);
void activation_gradient_cuda(const ActivationRows& rows);
int64_t activation_parts_cuda(int64_t rows, int64_t columns);

}  // namespace neox
