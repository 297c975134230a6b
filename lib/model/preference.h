// Answers that are learnt as a whole. Direct preference optimization (Rafailov et al., arXiv
// 2305.18290, equation 7): of two answers to a prompt the model comes to prefer one, more than a
// reference does; rows 2 i and 2 i + 1 of a batch are the chosen and the rejected answer of pair i.
// Kahneman-Tversky optimization (Ethayarajh et al., arXiv 2402.01306, equations 7 and 8): each row
// is an answer with a reward, above 0 where it is desirable.
//
// The loss is a function of the rows' log-probabilities alone, and its gradient theirs, each times
// a number: rows are learnt as texts are, with tokens that weigh that much.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace neox {

// Minus the log-probabilities of the counted tokens of each row, [B] double. losses: of each token,
// [B T]; weights [B, T].
at::Tensor row_losses(const at::Tensor& losses, const at::Tensor& weights);

// 1 for each sample of so many rows with a token that counts, else 0: double.
at::Tensor counted_samples(const at::Tensor& weights, int64_t rows);

struct PreferenceLoss {
  at::Tensor sum;     // over the counted samples, 0-dim double
  at::Tensor shares;  // [B] double: its derivative by each row's loss
  // [num_measures()] double, sums over the counted samples.
  at::Tensor measures;
};

struct AnswerRows {
  at::Tensor losses, reference;  // [B] double: row_losses() of the model and of the reference
  at::Tensor weights;            // [B, T]
  at::Tensor rewards;            // [B] double, of KTO; else undefined
};

// -log sigmoid of a pair's margin, which is beta times how much likelier than by the reference the
// chosen answer is, less the same of the rejected one. Measures: both, and whether the former is
// more.
PreferenceLoss dpo_loss(const AnswerRows& rows, double beta);

// 1 - sigmoid(beta reward (r - KL)) times the weight of desirable or undesirable answers; r: how
// much likelier than by the reference the answer is, in logarithms. KL is that of the other half of
// the batch, as GPT-NeoX estimates it: a mean of the r, those below 0 as 0; it has no gradient.
PreferenceLoss kto_loss(const AnswerRows& rows, const PreferenceConfig& config);

// The place of each row's last token that counts, [B] int64; 0 where none does.
at::Tensor last_counted(const at::Tensor& weights);

// -log sigmoid of how much higher the value of a pair's chosen answer is than that of the rejected
// one, and z_loss times the sum of their squares (GPT-NeoX's train_impl: rm). values: [B] double,
// which have the gradient; no shares. Measures: both values, and whether the former is higher.
PreferenceLoss score_loss_of(const at::Tensor& values, const at::Tensor& weights,
                             const PreferenceConfig& config);

PreferenceLoss preference_loss(const AnswerRows& rows, const PreferenceConfig& config);

int64_t num_measures(const PreferenceConfig& config);
// By GPT-NeoX's names (megatron/training.py), of their means over the samples.
std::vector<std::pair<std::string, double>> named_measures(const PreferenceConfig& config,
                                                           std::span<const double> means);

}  // namespace neox
