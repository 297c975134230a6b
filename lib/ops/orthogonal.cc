#include "ops/orthogonal.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>

#include "base/error.h"

namespace neox {

at::Tensor orthogonalized(const at::Tensor& matrix) {
  check(matrix.dim() == 2 || matrix.dim() == 3,
        "only a matrix, or each of a stack, has an orthogonal factor; found ", matrix.dim(),
        " dimensions");
  if (matrix.dim() == 3) {
    at::Tensor all = at::empty_like(matrix);
    for (int64_t i = 0; i < matrix.size(0); ++i) all[i].copy_(orthogonalized(matrix[i]));
    return all;
  }
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  bool tall = matrix.size(0) > matrix.size(1);  // the products are of the smaller side
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x / (x.norm() + 1e-7);
  if (x.is_cuda() && x.scalar_type() == at::kFloat) x = x.to(at::kBFloat16);
  for (int i = 0; i < 5; ++i) {
    at::Tensor square = at::matmul(x, x.t());
    at::Tensor polynomial = at::addmm(square, square, square, kB, kC);
    x = at::addmm(x, polynomial, x, kA, 1);
  }
  x = x.to(matrix.scalar_type());
  return tall ? x.t() : x;
}

}  // namespace neox
