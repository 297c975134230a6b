// Direct preference optimization (Rafailov et al., arXiv 2305.18290, equation 7): of two answers to
// a prompt the model comes to prefer one, more than a reference does. Rows 2 i and 2 i + 1 of a
// batch are the chosen and the rejected answer of pair i.
//
// The loss is a function of the rows' log-probabilities alone, and its gradient theirs, each times
// a number: rows are learnt as texts are, with tokens that weigh that much.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

// Minus the log-probabilities of the counted tokens of each row, [B] double. losses: of each token,
// [B T]; weights [B, T].
at::Tensor row_losses(const at::Tensor& losses, const at::Tensor& weights);

// 1 for each pair with a token that counts, else 0: [B / 2] double.
at::Tensor counted_pairs(const at::Tensor& weights);

struct PreferenceLoss {
  at::Tensor sum;     // over the counted pairs: -log sigmoid of their margin, 0-dim double
  at::Tensor shares;  // [B] double: its derivative by each row's loss
  // [3] double, sums over the counted pairs: beta times how much likelier than by the reference the
  // chosen answer is, and the rejected one; whether the former is more.
  at::Tensor rewards;
};

// rows: row_losses() of the model; reference: of the reference. pairs: counted_pairs().
PreferenceLoss dpo_loss(const at::Tensor& rows, const at::Tensor& reference,
                        const at::Tensor& pairs, double beta);

}  // namespace neox
