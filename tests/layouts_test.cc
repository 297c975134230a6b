// Any layout gives one rank's losses, parameters and moments.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "optimizer_cases.h"
#include "tiny_run.h"

namespace neox {
namespace {

constexpr double kTolerance = 1e-12;
constexpr int64_t kSteps = 6;

const std::vector<Layout> kLayouts = {
    {.tp = 2},
    {.tp = 4},
    {.shard = 2},
    {.shard = 3},
    {.replicate = 2},
    {.pp = 2},
    {.pp = 3},
    {.pp = 4},
    {.replicate = 2, .shard = 2},
    {.replicate = 2, .shard = 3},
    {.shard = 3, .tp = 2},
    {.replicate = 2, .tp = 2},
    {.pp = 2, .tp = 2},
    {.pp = 2, .shard = 3},
    {.pp = 2, .replicate = 2, .tp = 2},
    {.pp = 4, .shard = 2},
    {.pp = 2, .replicate = 2, .shard = 2, .tp = 2},
    {.pp = 4, .replicate = 2, .tp = 2},
    {.pp = 3, .shard = 3, .tp = 4},
};

class Layouts : public testing::TestWithParam<Layout> {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }
  // One rank's run with these options, made once.
  static const TinyResult& golden(const std::string& name, const TinyOptions& options) {
    static std::map<std::string, TinyResult> results;
    auto found = results.find(name);
    if (found == results.end())
      found = results.emplace(name, TinyRun({}, options).train(0, kSteps)).first;
    return found->second;
  }
  void expect_golden(const std::string& name, const TinyOptions& reference,
                     const TinyOptions& options) {
    const TinyResult& want = golden(name, reference);
    TinyResult got = TinyRun(GetParam(), options).train(0, kSteps);
    EXPECT_LE(distance(got.steps, want.steps), kTolerance) << to_string(GetParam());
    EXPECT_LE(distance(got.state, want.state), kTolerance) << to_string(GetParam());
    EXPECT_EQ(got.copies_differ, "") << to_string(GetParam());
  }
};

TEST_P(Layouts, EqualOneRank) {
  TinyOptions options;
  expect_golden("plain", options, options);
}

TEST_P(Layouts, EqualOneRankWithTiedEmbeddingSequentialResidualAndZero2) {
  TinyOptions reference;
  reference.model.tied_embedding = true;
  reference.model.parallel_residual = false;
  TinyOptions options = reference;
  options.keeping = Keeping::kParameters;
  expect_golden("tied", reference, options);
}

TEST_P(Layouts, EqualOneRankWithRecomputationAndLargerMicroBatches) {
  TinyOptions reference, options;
  reference.model.hidden_dropout = 0;
  options.model.hidden_dropout = 0;
  options.recompute = 2;
  options.micro = 2;
  expect_golden("recomputed", reference, options);
}

TEST_P(Layouts, EqualOneRankWithZero3) {
  TinyOptions reference, options;
  options.keeping = Keeping::kChunks;
  expect_golden("plain", reference, options);
}

TEST_P(Layouts, EqualOneRankWithZero3AndRecomputation) {
  TinyOptions reference, options;
  options.keeping = Keeping::kChunks;
  options.recompute = 2;
  options.micro = 2;
  expect_golden("plain", reference, options);
}

TEST_P(Layouts, EqualOneRankWithABatchThatGrows) {
  TinyOptions options;
  options.batch_of_step = [](int64_t step) { return std::vector{1, 1, 3, 4}.at(step % 4); };
  expect_golden("growing", options, options);
}

// tp divides the eight tokens; of two samples a part may be a sample, or of both.
TEST_P(Layouts, EqualOneRankWithSequenceParallelism) {
  TinyOptions reference;
  reference.model.seq = 8;
  TinyOptions options = reference;
  options.splits_tokens = true;
  options.micro = 2;
  expect_golden("eight", reference, options);
  options.keeping = Keeping::kChunks;
  options.recompute = 2;
  expect_golden("eight", reference, options);
}

INSTANTIATE_TEST_SUITE_P(All, Layouts, testing::ValuesIn(kLayouts));

class LayoutsOfOptions : public testing::TestWithParam<ModelOption> {};

TEST_P(LayoutsOfOptions, EqualOneRank) {
  at::set_num_threads(1);
  TinyOptions plain, options;
  plain.model.seq = options.model.seq = options.model.positions = 8;
  GetParam().set(options);
  TinyResult one = TinyRun({}, options).train(0, 3);
  EXPECT_NE(one.steps[0].loss, TinyRun({}, plain).train(0, 1).steps[0].loss);
  for (bool splits_tokens : {false, true}) {
    options.splits_tokens = splits_tokens;
    for (Layout layout : {Layout{.tp = 2}, {.pp = 2}, {.shard = 2}, {.pp = 2, .tp = 2}}) {
      if (splits_tokens && layout.tp == 1) continue;
      TinyResult many = TinyRun(layout, options).train(0, 3);
      EXPECT_LE(distance(many.steps, one.steps), kTolerance) << to_string(layout);
      EXPECT_LE(distance(many.state, one.state), kTolerance) << to_string(layout);
      EXPECT_EQ(many.copies_differ, "") << to_string(layout);
      if (layout.shard > 1) continue;  // a micro-batch is filled up
      EXPECT_NEAR(many.steps[0].expert_load, one.steps[0].expert_load, kTolerance);
    }
  }
}

const auto name_of_option = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(All, LayoutsOfOptions, testing::ValuesIn(recorded_options()),
                         name_of_option);
INSTANTIATE_TEST_SUITE_P(Experts, LayoutsOfOptions, testing::ValuesIn(kExpertOptions),
                         name_of_option);

class Optimizers : public testing::TestWithParam<OptimizerCase> {};

TEST_P(Optimizers, EqualOneRankAtEveryLayout) {
  at::set_num_threads(1);
  TinyOptions options = tiny_options(GetParam());
  TinyResult want = TinyRun({}, options).train(0, kSteps);
  for (Layout layout : std::vector<Layout>{
           {.tp = 2}, {.pp = 2}, {.shard = 2}, {.pp = 2, .tp = 2}, {.replicate = 2, .shard = 3}}) {
    if (!has_layout(GetParam(), layout)) continue;
    options.keeping = layout.shard == 3 ? Keeping::kChunks : Keeping::kAll;
    TinyResult got = TinyRun(layout, options).train(0, kSteps);
    EXPECT_LE(distance(got.steps, want.steps), kTolerance) << to_string(layout);
    EXPECT_LE(distance(got.state, want.state), kTolerance) << to_string(layout);
    EXPECT_EQ(got.copies_differ, "") << to_string(layout);
  }
}

TEST_P(Optimizers, ChangeEveryParameter) {
  at::set_num_threads(1);
  TinyOptions options = tiny_options(GetParam());
  WholeState start = TinyRun({}, options).train(0, 0).state,
             end = TinyRun({}, options).train(0, 2).state;
  for (const auto& [name, t] : start) EXPECT_FALSE(t.equal(end.at(name))) << name;
}

TEST_P(Optimizers, PublishTheRoundedMasters) {
  at::set_num_threads(1);
  TinyOptions options = tiny_options(GetParam());
  options.dtypes = {at::kBFloat16, at::kFloat, at::kFloat};
  options.precision = {.type = Precision::kBf16};
  for (Layout layout : std::vector<Layout>{{}, {.shard = 2}, {.shard = 5}, {.tp = 2}}) {
    if (!has_layout(GetParam(), layout)) continue;
    TinyResult run = TinyRun(layout, options).train(0, 3);
    EXPECT_EQ(run.copies_differ, "") << to_string(layout);
    EXPECT_TRUE(run.steps.back().finite) << to_string(layout);
  }
}

// With five ranks and more each owns a matrix of some layers, and nothing of others.
TEST(Muon, EqualsOneRankWhereRanksOwnNothingOfALayer) {
  at::set_num_threads(1);
  TinyOptions options = tiny_options(optimizer_case("Muon"));
  TinyResult want = TinyRun({}, options).train(0, kSteps);
  for (Keeping keeping : {Keeping::kAll, Keeping::kParameters, Keeping::kChunks})
    for (Layout layout : std::vector<Layout>{{.shard = 5}, {.replicate = 2, .shard = 6, .tp = 2}}) {
      options.keeping = keeping;
      TinyResult got = TinyRun(layout, options).train(0, kSteps);
      EXPECT_LE(distance(got.steps, want.steps), kTolerance) << to_string(layout);
      EXPECT_LE(distance(got.state, want.state), kTolerance) << to_string(layout);
      EXPECT_EQ(got.copies_differ, "") << to_string(layout);
    }
}

TEST(OneBitAdam, IsExactAtEveryLayoutUntilItFreezes) {
  at::set_num_threads(1);
  TinyOptions options = tiny_options(optimizer_cases().back());
  options.optimizer.freeze_step = kSteps;
  TinyResult want = TinyRun({}, options).train(0, kSteps);
  for (Layout layout : std::vector<Layout>{{.replicate = 3}, {.pp = 2, .replicate = 2, .tp = 2}}) {
    TinyResult got = TinyRun(layout, options).train(0, kSteps);
    EXPECT_LE(distance(got.state, want.state), kTolerance) << to_string(layout);
  }
}

// Two more steps with signs on two replicas, whose parameters stay the same bits.
TEST(OneBitAdam, KeepsReplicasEqualAfterItFreezes) {
  at::set_num_threads(1);
  TinyOptions options = tiny_options(optimizer_cases().back());
  options.model.tied_embedding = true;
  TinyResult two = TinyRun({.pp = 2, .replicate = 2, .tp = 2}, options).train(0, kSteps);
  EXPECT_EQ(two.copies_differ, "");
  EXPECT_TRUE(two.steps.back().finite);
  EXPECT_GT(distance(two.state, TinyRun({}, options).train(0, kSteps).state), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers, testing::ValuesIn(optimizer_cases()));

TEST(LayoutsGolden, ClippingIsActiveAndTheLossFalls) {
  at::set_num_threads(1);
  TinyResult one = TinyRun({}, {}).train(0, 20);
  EXPECT_GT(one.steps.front().grad_norm, 0.5);
  EXPECT_TRUE(one.steps.front().finite);
  EXPECT_EQ(one.steps.front().lr, 1e-3 / 2);
}

TEST(LayoutsGolden, DropoutAndTheLossMaskMatter) {
  TinyOptions no_dropout, no_mask;
  no_dropout.model.hidden_dropout = no_dropout.model.attention_dropout = 0;
  no_mask.masked = false;
  double loss = TinyRun({}, {}).train(0, 1).steps[0].loss;
  EXPECT_NE(loss, TinyRun({}, no_dropout).train(0, 1).steps[0].loss);
  EXPECT_NE(loss, TinyRun({}, no_mask).train(0, 1).steps[0].loss);
}

}  // namespace
}  // namespace neox
