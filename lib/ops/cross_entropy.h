// Softmax cross entropy of a chunk of logits, which turn into their own gradients, so that neither
// probabilities nor a second tensor of that size exist. A vocabulary may be split over ranks: they
// reduce the rows' statistics between the calls.
//
//   own = row_statistics(logits, targets)
//   top = own[0].clone()                                    -> all_reduce(max)
//   sums = sums_below(top, own)                             -> all_reduce(sum)
//   loss of each row = sums[0].log() - (sums[1] - top)
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

// [3, N], of the columns here: the maximum, the sum of exp(logit - maximum), and the logit of the
// target, 0 where that is another rank's.
at::Tensor row_statistics(const at::Tensor& logits, const LogitTargets& targets);

// [2, N] of such statistics: the sum of exp(logit - top), top being that of all columns; and the
// target's logit.
at::Tensor sums_below(const at::Tensor& top, const at::Tensor& statistics);

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
  const int64_t* target;
  int64_t first;
  void *logits, *top, *sums;  // [N, V], [N], [2, N]
  const void* factor;         // null: logits stay
};

// The CUDA halves: gradients for given statistics, and statistics with gradients, or without.
void gradients_cuda(const CrossEntropyRows& rows);
void cross_entropy_cuda(const CrossEntropyRows& rows);

}  // namespace neox
