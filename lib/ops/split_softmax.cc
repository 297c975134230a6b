#include "ops/split_softmax.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include "ops/softmax_rows.h"

namespace neox {
namespace {

using at::Tensor;

constexpr int64_t kRowsAtLeast = 8;  // that a thread takes

// f(row, its scores, its target) of all rows, over the threads.
template <class F>
void each_row(SoftmaxBlock& block, F f) {
  auto* scores = block.scores.mutable_data_ptr<float>();
  const auto* column = block.column.const_data_ptr<int64_t>();
  int64_t n = block.scores.size(1);
  at::parallel_for(0, block.scores.size(0), kRowsAtLeast, [&](int64_t from, int64_t to) {
    for (int64_t row = from; row < to; ++row) f(row, scores + row * n, column[row]);
  });
}

bool inside(int64_t column, int64_t n) { return column >= 0 && column < n; }

}  // namespace

void softmax_forward(SoftmaxBlock& block, Tensor& at_target) {
  Tensor& scores = block.scores;
  int64_t n = scores.size(1);
  auto *top = block.top.mutable_data_ptr<float>(), *sum = block.sum.mutable_data_ptr<float>(),
       *target = at_target.mutable_data_ptr<float>();
  each_row(block, [&](int64_t row, float* x, int64_t column) {
    if (inside(column, n)) target[row] += x[column];
    top[row] = row_max(x, n);
    sum[row] = row_exp(x, n, 1, top[row]);
  });
}

void softmax_backward(SoftmaxBlock& block, const Tensor& factor, const Tensor& share) {
  Tensor& scores = block.scores;
  int64_t n = scores.size(1);
  const auto *factors = factor.const_data_ptr<float>(), *shares = share.const_data_ptr<float>();
  each_row(block, [&](int64_t row, float* x, int64_t column) {
    row_multiply(x, n, factors[row]);
    if (inside(column, n)) x[column] -= shares[row];
  });
}

}  // namespace neox
