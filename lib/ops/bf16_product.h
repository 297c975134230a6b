// Products of bf16 tensors by the kernels of bf16_kernels.h, over the threads.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/bf16_kernels.h"

namespace neox {

// Whether the kernels take this tensor: bf16 on a CPU that has them.
bool bf16_multiplies(const at::Tensor& x);

// As the kernels see a matrix [rows, depth]; rows or depth lie consecutively.
Bf16Matrix bf16_matrix(const at::Tensor& x);

// Room for so many pairs, on 64 bytes.
at::Tensor room_for_pairs(int64_t n);
inline uint32_t* pairs_in(const at::Tensor& room) {
  return reinterpret_cast<uint32_t*>(room.mutable_data_ptr<int32_t>());
}

// y [M, N] = a [M, K] b [N, K]^T + bias [N], sums in float. y is float or bf16, its rows lie
// consecutively; bias is undefined, or of any type.
void bf16_product_out(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b,
                      const at::Tensor& bias = {});
// y += a b^T + bias; y is float.
void add_bf16_product(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b,
                      const at::Tensor& bias = {});

// x [M, K] of several products with parts of matrices, packed once.
class FewRows {
 public:
  // Whether products of x with parts of w [N, K] are soonest had so.
  static bool take(const at::Tensor& x, const at::Tensor& w);
  explicit FewRows(const at::Tensor& x) : FewRows(bf16_matrix(x)) {}
  explicit FewRows(const Bf16Matrix& x);
  // y [M, N] = x w [N, K]^T + bias [N]; y is float, its rows and w's lie consecutively, and bias is
  // float or undefined.
  void product_out(const at::Tensor& y, const at::Tensor& w, const at::Tensor& bias) const;
  // c [N, M], or transposed.
  void multiply(const Bf16Matrix& w, const ProductSum& c) const;

 private:
  int64_t M_, words_;
  at::Tensor packed_;
};

// b [N, K] of several products one after the other, packed once.
class PackedFactor {
 public:
  explicit PackedFactor(const at::Tensor& b);
  // y [M, N] = a [M, K] b^T.
  void product_out(const at::Tensor& y, const at::Tensor& a) const;

 private:
  int64_t N_, K_;
  at::Tensor packed_;
};

}  // namespace neox
