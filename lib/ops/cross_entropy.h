// Softmax cross entropy of a chunk of logits, which turn into their own gradients, so that neither
// probabilities nor a second tensor of that size exist. A vocabulary may be split over ranks: they
// reduce the rows' statistics between the calls.
//
//   top = row_max(logits)                                   -> all_reduce(max)
//   sums = exp_sums(logits, top, targets)                   -> all_reduce(sum)
//   loss of each row = sums[0].log() - sums[1]
//   gradients_(logits, top, sums, targets, factor)
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/element.h"

namespace neox {

// logits [N, V] contiguous: columns first .. first + V - 1 of the vocabulary. Statistics are float,
// of double logits double; those of one row do not depend on other rows.
struct LogitTargets {
  at::Tensor column;  // [N] int64, in the whole vocabulary
  int64_t first = 0;
};

at::Tensor row_max(const at::Tensor& logits);  // [N]

// [2, N]: the sum of exp(logit - top), and logit - top of the target, 0 where it is another rank's.
at::Tensor exp_sums(const at::Tensor& logits, const at::Tensor& top, const LogitTargets& targets);

// In place: logit -> factor (exp(logit - top) / sums[0] - [column is the target]); factor [N] of
// the statistics' type.
void gradients_(at::Tensor& logits, const at::Tensor& top, const at::Tensor& sums,
                const LogitTargets& targets, const at::Tensor& factor);

// All of it for a vocabulary that is whole: the loss of each row, [N]; on a CPU with the same bits.
// With a factor logits turn into gradients; undefined, they stay.
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& factor);

// What the kernels take. Statistics and factor are float, or double where the logits are.
struct CrossEntropyRows {
  Element type;
  int64_t rows, columns;
  const int64_t* target;  // null: statistics without one
  int64_t first;
  void *logits, *top, *sums;  // [N, V], [N], [2, N]
  const void* factor;         // null: logits stay
};

// The CUDA halves. The last does all in one pass where top, sums and factor are those of the rows.
void row_max_cuda(const CrossEntropyRows& rows);
void exp_sums_cuda(const CrossEntropyRows& rows);
void gradients_cuda(const CrossEntropyRows& rows);
void cross_entropy_cuda(const CrossEntropyRows& rows);

}  // namespace neox
