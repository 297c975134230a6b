// Answers learnt as a whole, against PyTorch (tests/oracle/model.py): loss, measures and every
// gradient. That layouts change nothing is a case of layouts_test.cc.
#include "model/preference.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>

#include "model_cases.h"

namespace neox {
namespace {

Tensor counted_tokens(const ModelCase& c) {
  Tensor t = at::empty({c.batch, c.config.seq}, at::kFloat);
  Hash hash(c.name + "/weights");
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mutable_data_ptr<float>()[i] = hash(i) % 4 != 0 ? 1.0F : 0.0F;
  return t;
}

Batch counted_batch(const ModelCase& c) {
  Batch batch = batch_of(made_up_tokens(c, 0));
  batch.weights = counted_tokens(c);
  return batch;
}

// Of a model with the case's weights by another name.
Tensor rows_of(ModelCase c, const std::string& name, const Batch& batch, const Dtypes& dtypes) {
  c.name = name;
  ModelRun run(c, {.dtypes = dtypes});
  std::vector<Tensor> rows;
  Pipeline(run.model())
      .evaluate(
          1, [&](int64_t) { return batch; }, &rows);
  return rows.at(0);
}

struct Precise {
  Dtypes dtypes;
  double tolerance;
};

const std::vector<Precise> kPrecisions = {{kAll64, 1e-9}, {kAll32, 2e-5}};

// The step of a batch, as means over its samples, and every gradient.
void expect_loss_of_pytorch(const nlohmann::json& want, const ModelCase& c, const Batch& batch,
                            const PreferenceConfig& preference, const Precise& precise) {
  ModelRun run(c, {.dtypes = precise.dtypes, .preference = preference});
  bool pairs = preference.kind != PreferenceConfig::Kind::kKto;
  double samples = static_cast<double>(c.batch) / (pairs ? 2 : 1);
  LossSum sum = Pipeline(run.model())
                    .train(
                        1, [&](int64_t) { return batch; }, at::full({}, 1 / samples, at::kDouble));
  EXPECT_EQ(sum.weight.item<double>(), samples);
  EXPECT_NEAR(sum.loss.item<double>() / samples / want.at("loss").get<double>(), 1,
              precise.tolerance);
  Tensor means = sum.measures / samples;
  std::span values(means.const_data_ptr<double>(), static_cast<size_t>(means.numel()));
  for (const auto& [name, value] : named_measures(preference, values))
    EXPECT_NEAR(value, want.at("measures").at(name).get<double>(), 30 * precise.tolerance) << name;
  Worst worst;
  for (const auto& [name, t] : run.gradients())
    worst.add(name, relative_distance(sketch(name, t), want.at("sketches").at(name).get<Sketch>()));
  EXPECT_LE(worst.distance, precise.tolerance) << worst.name;
  LossSum again = Pipeline(run.model()).evaluate(1, [&](int64_t) { return batch; });
  EXPECT_EQ(again.loss.item<double>(), sum.loss.item<double>());
}

TEST(Preference, LossAndEveryGradientEqualThoseOfPyTorch) {
  nlohmann::json want = read_golden("preference.json");
  ModelCase c = model_case(want);
  for (const Precise& precise : kPrecisions) {
    Batch batch = counted_batch(c);
    batch.reference = rows_of(c, "reference", batch, precise.dtypes);
    expect_loss_of_pytorch(want, c, batch, {.beta = want.at("beta")}, precise);
  }
}

TEST(Preference, LossAndGradientsOfAnswersWithRewardsEqualThoseOfPyTorch) {
  nlohmann::json want = read_golden("kto.json");
  ModelCase c = model_case(want);
  for (const Precise& precise : kPrecisions) {
    Batch batch = counted_batch(c);
    batch.reference = rows_of(c, "reference", batch, precise.dtypes);
    batch.rewards = at::tensor(want.at("rewards").get<std::vector<double>>(), at::kDouble);
    expect_loss_of_pytorch(want, c, batch,
                           {.kind = PreferenceConfig::Kind::kKto,
                            .beta = want.at("beta"),
                            .desirable_weight = want.at("desirable"),
                            .undesirable_weight = want.at("undesirable")},
                           precise);
  }
}

TEST(Preference, LossAndGradientsOfScoresEqualThoseOfPyTorch) {
  nlohmann::json want = read_golden("scores.json");
  ModelCase c = model_case(want);
  c.config.scores = true;
  for (const Precise& precise : kPrecisions)
    expect_loss_of_pytorch(want, c, counted_batch(c),
                           {.kind = PreferenceConfig::Kind::kScores, .z_loss = want.at("z_loss")},
                           precise);
}

TEST(Preference, CountsPairsWithTokens) {
  nlohmann::json want = read_golden("preference.json");
  ModelCase c = model_case(want);
  Batch batch = counted_batch(c);
  batch.reference = rows_of(c, c.name, batch, kAll64);  // the model itself
  batch.weights.narrow(0, 2, 2).zero_();
  batch.reference.narrow(0, 2, 2).zero_();
  ModelRun run(c, {.dtypes = kAll64, .preference = PreferenceConfig{.beta = 0.3}});
  LossSum sum = Pipeline(run.model()).evaluate(1, [&](int64_t) { return batch; });
  EXPECT_EQ(sum.weight.item<double>(), 1);
  EXPECT_EQ(sum.loss.item<double>(), std::log(2.0));
  EXPECT_EQ(sum.measures.abs().sum().item<double>(), 0);
}

// By how much likelier than by the reference each is, and one token each.
AnswerRows answers(const std::vector<double>& ratios, const std::vector<double>& rewards) {
  Tensor t = at::tensor(ratios, at::kDouble);
  return {at::full_like(t, 5), t + 5, at::ones({t.size(0), 1}), at::tensor(rewards, at::kDouble)};
}

const PreferenceConfig kKto{.kind = PreferenceConfig::Kind::kKto, .beta = 1};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// As torch.chunk, the first half of an odd number has one more.
TEST(Preference, TheDivergenceOfAnAnswerIsThatOfTheCountedOnesInTheOtherHalf) {
  AnswerRows rows = answers({1, -3, 2, 0.5, 8}, {1, 1, 1, 1, 1});
  rows.weights[4] = 0;
  PreferenceLoss loss = kto_loss(rows, kKto);
  double lost = sigmoid(0.5 - 1) + sigmoid(0.5 + 3) + sigmoid(0.5 - 2) + sigmoid(1 - 0.5);
  EXPECT_NEAR(loss.sum.item<double>(), lost, 1e-12);
  EXPECT_EQ(loss.shares[4].item<double>(), 0);
  rows.weights[3] = 0;  // none is left there
  lost = sigmoid(-1) + sigmoid(3) + sigmoid(-2);
  EXPECT_NEAR(kto_loss(rows, kKto).sum.item<double>(), lost, 1e-12);
}

TEST(Preference, AnAnswerWithoutRewardTeachesNothing) {
  PreferenceLoss loss = kto_loss(answers({1, 2}, {0, -1}), kKto);
  EXPECT_NEAR(loss.sum.item<double>(), sigmoid(2 - 1), 1e-12);
  EXPECT_EQ(loss.shares[0].item<double>(), 0);
  EXPECT_LT(loss.shares[1].item<double>(), 0);
}

TEST(Preference, StaysFiniteWithMarginsBeyondTheRangeOfExp) {
  for (double apart : {-1e4, 1e4}) {
    AnswerRows rows{
        at::full({2}, 5.0, at::kDouble), at::full({2}, 5.0, at::kDouble), at::ones({2, 1}), {}};
    rows.reference[1] = 5 - apart;
    PreferenceLoss loss = dpo_loss(rows, 1);
    EXPECT_EQ(loss.sum.item<double>(), apart < 0 ? 1e4 : 0);
    EXPECT_EQ(loss.shares[0].item<double>(), apart < 0 ? 1 : 0);
    EXPECT_EQ(loss.shares[1].item<double>(), apart < 0 ? -1 : 0);
    loss = kto_loss(answers({apart, 0}, {1, 1}), kKto);
    EXPECT_NEAR(loss.sum.item<double>(), apart < 0 ? 1.5 : 1, 1e-12);
    EXPECT_EQ(loss.shares[0].item<double>(), 0);
  }
}

}  // namespace
}  // namespace neox
