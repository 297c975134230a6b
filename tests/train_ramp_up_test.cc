// Batches that grow, in neox-train; what else is of all runs is in train_test.
#include <gtest/gtest.h>

#include "run_fixture.h"

namespace neox::testing {
namespace {

// Of two ranks one has nothing to do in the first steps.
TEST(RampUp, LossesAreThoseOfOneRank) {
  const Strings settings = kRampUp + Strings{"train_micro_batch_size_per_gpu=1"};
  Training one, two;
  ASSERT_EQ(one.train(settings).code, 0);
  Ended ended = two.train(settings, {"--spawn", "2"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.err,
                  "while the batch grows, the batch of 1 sample in micro-batches of 1 "
                  "leaves 1 of 2 data-parallel ranks without work; take a larger start of "
                  "rampup_batch_size"))
      << ended.err;
  auto want = one.losses(), got = two.losses();
  ASSERT_EQ(want.size(), 20u);
  for (const auto& [step, loss] : want) EXPECT_NEAR(got.at(step), loss, 1e-5) << step;
  EXPECT_EQ(one.metric("train/learning_rate"), two.metric("train/learning_rate"));
}

TEST(RampUp, OfARunIsNotChanged) {
  Training run;
  ASSERT_EQ(run.train(kRampUp + Strings{"exit_interval=10"}).code, 0);
  Ended ended = run.train(kRampUp + Strings{"rampup_batch_size=[1, 2, 10]"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "rampup_batch_size is [1, 2, 10], but the run of ")) << ended.err;
  EXPECT_TRUE(has(ended.err, " began with [1, 2, 12]")) << ended.err;
  ended = run.train({"train_iters=null", "train_samples=72", "train_batch_size=6"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "train_samples (--set) is counted in steps of it")) << ended.err;
  ended = run.train(kRampUp + Strings{"train_samples=82", "override_lr_scheduler=true"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(run.losses().rbegin()->first, 22);
}

TEST(RampUp, RatesBySamplesKeepTheirBatch) {
  Training run;
  const Strings rates = {"lr_decay_samples=80", "train_iters=10"};
  ASSERT_EQ(run.train(rates + Strings{"exit_interval=4"}).code, 0);
  Ended ended = run.train(rates + Strings{"train_batch_size=16"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "lr_decay_samples (--set) is counted in steps of it")) << ended.err;
  ended = run.train(rates + Strings{"train_batch_size=16", "use_checkpoint_lr_scheduler=true"});
  EXPECT_EQ(ended.code, 0) << ended.err;
}

}  // namespace
}  // namespace neox::testing
