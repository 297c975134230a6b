// The softmax of rows that come in blocks of columns, and the gradient of a cross entropy through
// it, on the CPU in float: one pass for each function. What all blocks of a row have in common is
// combined by the caller.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

struct SoftmaxBlock {
  at::Tensor scores;    // [rows, n] contiguous; not used by softmax_backward()
  at::Tensor kept;      // [rows, n] contiguous, float or bf16; may be scores, or undefined
  at::Tensor column;    // [rows] int64: each row's target, counted from this block's first column
  at::Tensor top, sum;  // [rows]: greatest score, and the sum of exp(score - top)
};

// kept, where there is one, becomes exp(score - top); top and sum are set. Where the target lies in
// the block, its score is added to at_target [rows].
void softmax_forward(SoftmaxBlock& block, at::Tensor& at_target);

// kept becomes kept x factor [rows], and at the target `target` [rows], which is not rounded twice.
void softmax_backward(SoftmaxBlock& block, const at::Tensor& factor, const at::Tensor& target);

// Both of scores that are there again, where nothing was kept: kept, of bf16, becomes
// exp(score - log_sum) x factor, and at the target `target`.
void softmax_again(SoftmaxBlock& block, const at::Tensor& log_sum, const at::Tensor& factor,
                   const at::Tensor& target);

}  // namespace neox
