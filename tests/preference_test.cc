// Direct preference optimization against PyTorch (tests/oracle/model.py): loss, rewards and every
// gradient. That layouts change nothing is a case of layouts_test.cc.
#include "model/preference.h"
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

Batch pairs_of(const ModelCase& c) {
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

struct Kind {
  Dtypes dtypes;
  double tolerance;
};

TEST(Preference, LossAndEveryGradientEqualThoseOfPyTorch) {
  nlohmann::json want = read_golden("preference.json");
  ModelCase c = model_case(want);
  for (const Kind& kind : {Kind{kAll64, 1e-9}, Kind{kAll32, 2e-5}}) {
    Batch batch = pairs_of(c);
    batch.reference = rows_of(c, "reference", batch, kind.dtypes);
    ModelRun run(c, {.dtypes = kind.dtypes, .dpo_beta = want.at("beta")});
    double pairs = static_cast<double>(c.batch) / 2;
    LossSum sum = Pipeline(run.model())
                      .train(
                          1, [&](int64_t) { return batch; }, at::full({}, 1 / pairs, at::kDouble));
    EXPECT_EQ(sum.weight.item<double>(), pairs);
    EXPECT_NEAR(sum.loss.item<double>() / pairs / want.at("loss").get<double>(), 1, kind.tolerance);
    const char* names[] = {"chosen", "rejected", "preferred"};
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_NEAR(sum.rewards[i].item<double>() / pairs, want.at(names[i]).get<double>(),
                  kind.tolerance)
          << names[i];
    Worst worst;
    for (const auto& [name, t] : run.gradients())
      worst.add(name,
                relative_distance(sketch(name, t), want.at("sketches").at(name).get<Sketch>()));
    EXPECT_LE(worst.distance, kind.tolerance) << worst.name;
    LossSum again = Pipeline(run.model()).evaluate(1, [&](int64_t) { return batch; });
    EXPECT_EQ(again.loss.item<double>(), sum.loss.item<double>());
  }
}

TEST(Preference, CountsPairsWithTokens) {
  nlohmann::json want = read_golden("preference.json");
  ModelCase c = model_case(want);
  Batch batch = pairs_of(c);
  batch.reference = rows_of(c, c.name, batch, kAll64);  // the model itself
  batch.weights.narrow(0, 2, 2).zero_();
  batch.reference.narrow(0, 2, 2).zero_();
  ModelRun run(c, {.dtypes = kAll64, .dpo_beta = 0.3});
  LossSum sum = Pipeline(run.model()).evaluate(1, [&](int64_t) { return batch; });
  EXPECT_EQ(sum.weight.item<double>(), 1);
  EXPECT_EQ(sum.loss.item<double>(), std::log(2.0));
  EXPECT_EQ(sum.rewards.abs().sum().item<double>(), 0);
}

TEST(Preference, StaysFiniteWithMarginsBeyondTheRangeOfExp) {
  Tensor rows = at::full({2}, 5.0, at::kDouble), reference = rows.clone();
  for (double apart : {-1e4, 1e4}) {
    reference[1] = 5 - apart;
    PreferenceLoss loss = dpo_loss(rows, reference, at::ones({1}, at::kDouble), 1);
    EXPECT_EQ(loss.sum.item<double>(), apart < 0 ? 1e4 : 0);
    EXPECT_EQ(loss.shares[0].item<double>(), apart < 0 ? 1 : 0);
    EXPECT_EQ(loss.shares[1].item<double>(), apart < 0 ? -1 : 0);
  }
}

}  // namespace
}  // namespace neox
