// x W^T + b in the type, and by the kernels, with which the processor multiplies fastest. A bf16
// product has the same sum in fp32: inputs are exact there, and both accumulate in fp32.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

// Whether this tensor is of a type, bf16 or fp16, in which ATen is slower than in fp32 on this
// processor. Intel's without AMX: with AVX512-BF16 oneDNN has 80 GFLOP/s in bf16 and 148 in fp32
// (one core of a Xeon of 2023, 2048 x 512 x 2048), without it less. Others: where AVX512-BF16 is
// missing; in fp16 where AVX512-FP16 is.
bool slow_for_aten(const at::Tensor& x);
// Whether products of many rows of this type, or of this tensor, are computed in fp32 for that
// reason: where there are no kernels of ours.
bool multiplied_in_fp32(at::ScalarType type);
bool multiplied_in_fp32(const at::Tensor& x);

// x [..., K], w [N, K], b [N] or undefined: [..., N]. Few rows, as in generation, are bound by
// reading w, so they are multiplied as they are.
at::Tensor product(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b = {});
// The same, multiplied in `type`.
at::Tensor product_in(at::ScalarType type, const at::Tensor& x, const at::Tensor& w,
                      const at::Tensor& b = {});

// The type in which product() multiplies x.
at::ScalarType type_of_product(const at::Tensor& x);
// y [M, N] = x [M, K] w^T, all of that type.
void product_out(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w);

// sum [M, N] += a [M, K] b [K, N]. The sum may be of the type in which a and b, of 16 bits, are
// summed: float.
void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b);

// The leaf w for one product(), whose backward leaves w's gradient to a node that is made here. Of
// the nodes that are ready autograd runs the one that was made last, so what lies between this call
// and the product in forward comes before it, and what lies before this call comes after.
at::Tensor with_later_gradient(const at::Tensor& w);

// The gradients of product(): of x [..., K] from dy [..., N], and of w from both, undefined where
// it has been added to w's kept gradient already.
at::Tensor product_input_gradient(const at::Tensor& dy, const at::Tensor& w);
at::Tensor product_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w);

}  // namespace neox
