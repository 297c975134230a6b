#include "ops/split_softmax.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/record_function.h>

#include "ops/softmax_rows.h"

namespace neox {
namespace {

using at::Tensor;

constexpr int64_t kRowsAtLeast = 8;  // that a thread takes

void set(float x, uint16_t* to) { row_round(&x, 1, to); }
void set(float x, float* to) { *to = x; }

// f(row, its target) of all rows, over the threads.
template <class F>
void each_row(SoftmaxBlock& block, F f) {
  const auto* column = block.column.const_data_ptr<int64_t>();
  at::parallel_for(0, block.scores.size(0), kRowsAtLeast, [&](int64_t from, int64_t to) {
    for (int64_t row = from; row < to; ++row) f(row, column[row]);
  });
}

bool inside(int64_t column, int64_t n) { return column >= 0 && column < n; }

bool in_half(const SoftmaxBlock& block) {
  return block.kept.defined() && block.kept.scalar_type() == at::kBFloat16;
}
uint16_t* halves(const Tensor& x) { return static_cast<uint16_t*>(x.mutable_data_ptr()); }

}  // namespace

void softmax_forward(SoftmaxBlock& block, Tensor& at_target) {
  RECORD_FUNCTION("neox::softmax", std::vector<c10::IValue>({block.scores}));
  int64_t n = block.scores.size(1);
  bool half = in_half(block);
  auto *top = block.top.mutable_data_ptr<float>(), *sum = block.sum.mutable_data_ptr<float>(),
       *target = at_target.mutable_data_ptr<float>(),
       *scores = block.scores.mutable_data_ptr<float>();
  each_row(block, [&](int64_t row, int64_t column) {
    float* x = scores + row * n;
    if (inside(column, n)) target[row] += x[column];
    top[row] = row_max(x, n);
    sum[row] = row_exp(x, n, 1, top[row]);
    if (half) row_round(x, n, halves(block.kept) + row * n);
  });
}

void softmax_backward(SoftmaxBlock& block, const Tensor& factor, const Tensor& target) {
  RECORD_FUNCTION("neox::softmax_gradient", std::vector<c10::IValue>({block.kept}));
  int64_t n = block.kept.size(1);
  const auto *factors = factor.const_data_ptr<float>(), *targets = target.const_data_ptr<float>();
  auto update = [&](auto* x, int64_t row, int64_t column) {
    row_multiply(x, n, factors[row]);
    if (inside(column, n)) set(targets[row], x + column);
  };
  each_row(block, [&](int64_t row, int64_t column) {
    if (in_half(block))
      update(halves(block.kept) + row * n, row, column);
    else
      update(block.kept.mutable_data_ptr<float>() + row * n, row, column);
  });
}

void softmax_again(SoftmaxBlock& block, const Tensor& log_sum, const Tensor& factor,
                   const Tensor& target) {
  RECORD_FUNCTION("neox::softmax_gradient", std::vector<c10::IValue>({block.scores}));
  int64_t n = block.scores.size(1);
  const auto *log_sums = log_sum.const_data_ptr<float>(), *factors = factor.const_data_ptr<float>(),
             *targets = target.const_data_ptr<float>(),
             *scores = block.scores.const_data_ptr<float>();
  uint16_t* kept = halves(block.kept);
  each_row(block, [&](int64_t row, int64_t column) {
    row_exp_round(scores + row * n, n, log_sums[row], factors[row], kept + row * n);
    if (inside(column, n)) set(targets[row], kept + row * n + column);
  });
}

}  // namespace neox
