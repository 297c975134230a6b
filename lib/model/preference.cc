#include "model/preference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>

namespace neox {
namespace {

using at::Tensor;
using Kind = PreferenceConfig::Kind;

// Of each half of the rows the mean of the counted ratios, those below 0 being 0, for each row of
// the other half: [B].
Tensor divergence_of_others(const Tensor& ratios, const Tensor& counted) {
  int64_t rows = ratios.size(0), half = (rows + 1) / 2;
  Tensor positive = ratios.clamp_min(0) * counted;
  auto mean = [&](int64_t from, int64_t n, int64_t of) {
    Tensor number = counted.narrow(0, from, n).sum().clamp_min(1);
    return (positive.narrow(0, from, n).sum() / number).expand({of});
  };
  return at::cat({mean(half, rows - half, half), mean(0, half, rows - half)});
}

}  // namespace

Tensor row_losses(const Tensor& losses, const Tensor& weights) {
  return (losses.view(weights.sizes()).to(at::kDouble) * weights).sum(1);
}

Tensor counted_samples(const Tensor& weights, int64_t rows) {
  return (weights != 0).view({weights.size(0) / rows, -1}).any(1).to(at::kDouble);
}

PreferenceLoss dpo_loss(const AnswerRows& rows, double beta) {
  Tensor pairs = counted_samples(rows.weights, 2);
  Tensor rewards =
      ((rows.reference - rows.losses) * beta).view({-1, 2});  // [pairs, {chosen, rejected}]
  Tensor chosen = rewards.select(1, 0), rejected = rewards.select(1, 1), margin = chosen - rejected;
  Tensor push = at::sigmoid(-margin) * pairs * beta;
  auto sum = [&](const Tensor& x) { return (x * pairs).sum(); };
  return {-sum(at::log_sigmoid(margin)), at::stack({push, -push}, 1).flatten(),
          at::stack({sum(chosen), sum(rejected), sum((margin > 0).to(at::kDouble))})};
}

PreferenceLoss kto_loss(const AnswerRows& rows, const PreferenceConfig& config) {
  Tensor counted = counted_samples(rows.weights, 1);
  Tensor good = (rows.rewards > 0).to(at::kDouble), bad = (rows.rewards < 0).to(at::kDouble);
  Tensor weights = (good * config.desirable_weight + bad * config.undesirable_weight) * counted;
  Tensor ratios = rows.reference - rows.losses, factor = rows.rewards * config.beta;
  Tensor value = factor * (ratios - divergence_of_others(ratios, counted));
  Tensor lost = at::sigmoid(-value) * weights;
  Tensor rewards = factor * ratios, policy = -rows.losses, reference = -rows.reference;
  auto sum = [&](const Tensor& x) { return (x * counted).sum(); };
  return {lost.sum(), lost * at::sigmoid(value) * factor,
          at::stack({sum((rewards > 0).to(at::kDouble)), sum(rewards), sum(reference), sum(policy),
                     sum(reference * good), sum(reference * bad), sum(policy * good),
                     sum(policy * bad), rows.weights.to(at::kDouble).sum()})};
}

Tensor last_counted(const Tensor& weights) {
  Tensor places = at::arange(weights.size(1), weights.options().dtype(at::kLong));
  return ((weights != 0) * places).amax(1);
}

PreferenceLoss score_loss_of(const Tensor& values, const Tensor& weights,
                             const PreferenceConfig& config) {
  Tensor pairs = counted_samples(weights, 2), both = values.view({-1, 2});
  Tensor chosen = both.select(1, 0), rejected = both.select(1, 1), margin = chosen - rejected;
  auto sum = [&](const Tensor& x) { return (x * pairs).sum(); };
  Tensor squares = both.square().sum(1) * config.z_loss;
  return {sum(squares - at::log_sigmoid(margin)),
          {},
          at::stack({sum(chosen), sum(rejected), sum((margin > 0).to(at::kDouble))}).detach()};
}

PreferenceLoss preference_loss(const AnswerRows& rows, const PreferenceConfig& config) {
  return config.kind == Kind::kKto ? kto_loss(rows, config) : dpo_loss(rows, config.beta);
}

int64_t num_measures(const PreferenceConfig& config) { return config.kind == Kind::kKto ? 9 : 3; }

std::vector<std::pair<std::string, double>> named_measures(const PreferenceConfig& config,
                                                           std::span<const double> means) {
  if (config.kind == Kind::kDpo)
    return {{"reward_acc", means[2]},
            {"chosen_rewards", means[0]},
            {"rejected_rewards", means[1]},
            {"margins", means[0] - means[1]}};
  if (config.kind == Kind::kScores)
    return {{"accuracy", means[2]},
            {"pos_values", means[0]},
            {"neg_values", means[1]},
            {"margin", means[0] - means[1]}};
  double tokens = std::max(means[8], 1e-20);
  return {{"reward_acc", means[0]},
          {"policy_rewards", means[1]},
          {"ref_logp", means[2]},
          {"policy_logp", means[3]},
          {"pos_ref_logp", means[4]},
          {"neg_ref_logp", means[5]},
          {"pos_policy_logp", means[6]},
          {"neg_policy_logp", means[7]},
          {"kl", (means[3] - means[2]) / tokens}};
}

}  // namespace neox
