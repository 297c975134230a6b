// Steps that overflow in fp16, and the loss scale.
#include <gtest/gtest.h>

#include <cmath>

#include "run_fixture.h"

namespace neox::testing {
namespace {

TEST(Fp16, ASkippedStepAdvancesTheDataAndNothingElse) {
  Training run;
  Strings often = kFp16 + Strings{"fp16.loss_scale_window=2", "extra_save_iters=[9]"};
  ASSERT_EQ(run.train(often).code, 0);
  TrainState half = run.state(10), end = run.state(20);
  EXPECT_EQ(end.consumed_samples, 20 * 5);
  EXPECT_LT(half.optimizer_steps, 10);  // some were skipped in each half
  EXPECT_LT(end.optimizer_steps - half.optimizer_steps, 10);
  EXPECT_GT(end.optimizer_steps, 10);
  auto norms = run.metric("train/grad_norm"), rates = run.metric("train/learning_rate"),
       losses = run.losses();
  int64_t skipped = 0;
  for (int64_t step = 1; step < 20; ++step) {
    bool finite = std::isfinite(norms.at(step));
    skipped += !finite;
    EXPECT_EQ(rates.at(step) == rates.at(step + 1), !finite) << step;
    EXPECT_NE(losses.at(step), losses.at(step + 1)) << step;
  }
  EXPECT_EQ(end.optimizer_steps, 20 - skipped - !std::isfinite(norms.at(20)));
}

// Gradients of one rank's samples are as large as where it trains alone: the sum over many would
// otherwise be of numbers that fp16 has rounded to nothing.
TEST(Fp16, TheLossScaleMeansTheSameForAnyNumberOfRanks) {
  auto first_overflow = [](const std::string& batch, const Strings& more) {
    for (int power = 14; power < 32; ++power) {
      Training run;
      Ended ended = run.train({"precision=fp16", "fp16.loss_scale=" + std::to_string(1LL << power),
                               "train_iters=1", "train_batch_size=" + batch},
                              more);
      EXPECT_EQ(ended.code, 0) << ended.err;
      if (!std::isfinite(run.metric("train/grad_norm").at(1))) return power;
    }
    return 0;
  };
  EXPECT_NEAR(first_overflow("2", {}), first_overflow("16", {"--spawn", "8"}), 1);
}

// With one token alone, samples of both are the same.
TEST(Fp16, TheLossScaleMeansTheSameForSequencesThatAreCutShort) {
  Training cut, whole;
  std::string data = cut.dir().put("same", Documents(40, std::vector<int32_t>(50, 7)), 300);
  Strings settings =
      kFp16 + Strings{"data_path=" + data, "hidden_dropout=0", "attention_dropout=0"};
  const std::string four_of_16 =
      "curriculum_learning={enabled: true, curriculum_type: seqlen, min_difficulty: 4, "
      "max_difficulty: 16, schedule_type: fixed_discrete, schedule_config: "
      "{difficulty: [4, 16], max_step: [20]}}";
  ASSERT_EQ(cut.train(settings + Strings{four_of_16}).code, 0);
  ASSERT_EQ(whole.train(settings + Strings{"seq_length=4"}).code, 0);
  EXPECT_EQ(cut.metric("train/loss_scale"), whole.metric("train/loss_scale"));
  EXPECT_EQ(cut.losses(), whole.losses());
}

TEST(Fp16, StepsThatAllOverflowEndTheRun) {
  Training run;
  Ended ended = run.train({"precision=fp16", "fp16.loss_scale=4294967296", "train_iters=100"});
  EXPECT_EQ(ended.code, 78);
  EXPECT_TRUE(has(ended.err, "step 50: 50 steps in a row overflowed in fp16")) << ended.err;
  EXPECT_TRUE(has(ended.err, "precision: bfloat16")) << ended.err;
}

}  // namespace
}  // namespace neox::testing
