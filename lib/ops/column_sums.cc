#include "ops/column_sums.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace neox {

int64_t row_parts(int64_t rows) {
  constexpr int64_t kRowsAtLeast = 64, kMost = 64;
  return std::clamp<int64_t>(rows / kRowsAtLeast, 1, kMost);
}

void each_row_part(int64_t rows, int64_t parts,
                   const std::function<void(int64_t, int64_t, int64_t)>& work) {
  at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) work(rows * p / parts, rows * (p + 1) / parts, p);
  });
}

at::Tensor part_sums(at::IntArrayRef shape, const at::Tensor& like) {
  auto options = like.options().dtype(at::toOpMathType(like.scalar_type()));
  return like.is_cuda() && like.numel() > 0 ? at::empty(shape, options) : at::zeros(shape, options);
}

at::Tensor sum_of_parts(const at::Tensor& parts) {
  if (!parts.is_cuda() || parts.numel() == 0) return parts.sum(0);
  at::Tensor sum = at::empty(parts.sizes().slice(1), parts.options());
  sum_of_parts_cuda({element_of("the sum of parts", parts.scalar_type()), parts.size(0),
                     sum.numel(), parts.const_data_ptr(), sum.mutable_data_ptr()});
  return sum;
}

}  // namespace neox
