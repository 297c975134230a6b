// Learning rates and loss scale against golden values of tests/oracle/optim.py; skipped steps.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/file.h"
#include "optim/loss_scale.h"
#include "optim/schedule.h"
#include "optim_golden.h"
#include "tiny_run.h"

namespace neox {
namespace {

TEST(LearningRate, EqualsTheFormulasOfNeoxAndMegatron) {
  const std::map<std::string, LrDecay> decays = {
      {"constant", LrDecay::kConstant}, {"linear", LrDecay::kLinear},
      {"cosine", LrDecay::kCosine},     {"exponential", LrDecay::kExponential},
      {"WSD", LrDecay::kWsd},           {"inverse-square-root", LrDecay::kInverseSquareRoot}};
  const std::map<std::string, LrFormula> formulas = {
      {"v1", LrFormula::kV1}, {"v2", LrFormula::kV2}, {"megatron", LrFormula::kMegatron}};
  const std::map<std::string, WsdDecay> wsd = {{"exponential", WsdDecay::kExponential},
                                               {"linear", WsdDecay::kLinear},
                                               {"cosine", WsdDecay::kCosine},
                                               {"minus_sqrt", WsdDecay::kMinusSqrt}};
  for (const auto& j : golden().at("rates")) {
    ScheduleConfig c{.decay = decays.at(j.at("style")),
                     .formula = formulas.at(j.at("formula")),
                     .lr = j.at("lr"),
                     .min_lr = j.at("min_lr"),
                     .decay_iters = j.at("decay_iters"),
                     .warmup_iters = j.at("warmup_iters")};
    if (j.at("style") == "WSD") {
      c.wsd_decay = wsd.at(j.at("wsd_style"));
      c.wsd_decay_iters = j.at("wsd_iters");
    }
    for (size_t i = 0; i < j.at("steps").size(); ++i) {
      double want = j.at("rates")[i];
      EXPECT_NEAR(learning_rate(c, j.at("steps")[i]), want, 1e-13 * c.lr)
          << j.at("formula") << " " << j.at("style") << " at " << j.at("steps")[i];
    }
  }
}

// Where a run that was warm-up alone is trained longer by its own schedule.
TEST(LearningRate, BehindAWarmUpAloneIsTheLeast) {
  ScheduleConfig c{.lr = 6e-4, .min_lr = 6e-5, .decay_iters = 10, .warmup_iters = 10};
  for (LrDecay decay : {LrDecay::kCosine, LrDecay::kLinear, LrDecay::kExponential}) {
    c.decay = decay;
    EXPECT_EQ(learning_rate(c, 10), c.lr);
    EXPECT_EQ(learning_rate(c, 11), c.min_lr);
  }
  c.decay = LrDecay::kConstant;
  EXPECT_EQ(learning_rate(c, 11), c.lr);
}

TEST(LearningRate, RisesAgainBeyondTheDecayAsNeoxMainDoes) {
  ScheduleConfig c{.decay = LrDecay::kCosine,
                   .lr = 6e-4,
                   .min_lr = 6e-5,
                   .decay_iters = 143000,
                   .warmup_iters = 1430};
  EXPECT_NEAR(learning_rate(c, 143000), 6.00e-5, 5e-8);
  EXPECT_NEAR(learning_rate(c, 150000), 6.33e-5, 5e-8);
  EXPECT_NEAR(learning_rate(c, 200000), 2.49e-4, 5e-7);
  EXPECT_NEAR(learning_rate(c, 284570), 6.0e-4, 5e-7);
  EXPECT_EQ(learning_rate(c, 0), learning_rate(c, 1));
}

TEST(LearningRate, OfNeox1IsHeldAfterTheDecayAndStartsAtZero) {
  ScheduleConfig c{.decay = LrDecay::kCosine,
                   .formula = LrFormula::kV1,
                   .lr = 6e-4,
                   .min_lr = 6e-5,
                   .decay_iters = 143000,
                   .warmup_iters = 1430};
  EXPECT_EQ(learning_rate(c, 0), 0);
  EXPECT_EQ(learning_rate(c, 141570), learning_rate(c, 300000));
}

// tests/oracle/batch_ramp_up.py
TEST(LearningRate, FollowsTheSamplesOfABatchThatGrowsAsInMegatron) {
  for (const auto& j : nlohmann::json::parse(
           read_file(std::filesystem::path(NEOX_SOURCE_DIR) / "tests/golden/batch_ramp_up.json"))) {
    int64_t full = j.at("full"), samples = j.at("samples"), steps = j.at("steps");
    ScheduleConfig c{.decay = LrDecay::kCosine,
                     .formula = LrFormula::kMegatron,
                     .lr = 1e-3,
                     .min_lr = 1e-4,
                     .decay_iters = static_cast<double>(samples * 9 / 10) / full,
                     .warmup_iters = static_cast<double>(samples / 50) / full};
    const auto& r = j.at("ramp_up");
    auto rates = learning_rates(c, steps, BatchSchedule(full, BatchRampUp{r[0], r[1], r[2]}));
    ASSERT_EQ(std::ssize(rates), steps);
    for (const auto& [step, rate] : j.at("rates").get<std::vector<std::pair<size_t, double>>>())
      EXPECT_NEAR(rates[step], rate, 1e-13 * c.lr) << j.at("ramp_up") << " step " << step;
  }
}

PrecisionConfig fp16(double initial, int64_t window, int64_t hysteresis, double least) {
  return {.type = Precision::kFp16,
          .initial_loss_scale = initial,
          .loss_scale_window = window,
          .hysteresis = hysteresis,
          .min_loss_scale = least};
}

const Tensor kCounts = at::full({}, true, at::kBool);

TEST(LossScale, FollowsDeepspeedStepByStep) {
  for (const auto& j : golden().at("loss_scales")) {
    LossScale scale(fp16(j.at("initial"), j.at("window"), j.at("hysteresis"), j.at("min")),
                    at::kCPU);
    std::vector<double> got;
    for (int overflow : j.at("overflows")) {
      scale.update(scalar(overflow ? 0 : 1), kCounts);
      got.push_back(scale.state().scale);
    }
    EXPECT_EQ(got, j.at("scales").get<std::vector<double>>()) << "window " << j.at("window");
  }
}

// DeepSpeed's FP16_Optimizer, which it has without ZeRO.
TEST(LossScale, WithoutHysteresisFollowsDeepspeedStepByStep) {
  for (int64_t window : {1, 2, 5}) {
    std::mt19937 random(static_cast<unsigned>(window));
    LossScale scale(fp16(0x1p10, window, 0, 4), at::kCPU);
    double expected = 0x1p10;
    for (int64_t step = 0, overflow = -1; step < 300; ++step) {
      bool skipped = random() % 8 == 0 || (step > 50 && step < 60);
      int64_t stable = step - overflow - 1;
      if (skipped)
        expected = std::max(expected / 2, 4.0), overflow = step;
      else if (stable > 0 && stable % window == 0)
        expected *= 2;
      scale.update(scalar(skipped ? 0 : 1), kCounts);
      ASSERT_EQ(scale.state().scale, expected) << window << " " << step;
    }
  }
}

TEST(LossScale, ContinuesFromItsStateAfterAnyStep) {
  const auto& j = golden().at("loss_scales")[0];
  PrecisionConfig config = fp16(j.at("initial"), j.at("window"), j.at("hysteresis"), j.at("min"));
  LossScale straight(config, at::kCPU);
  for (size_t i = 0; i < j.at("overflows").size(); ++i) {
    LossScale resumed(config, at::kCPU);
    resumed.restore(straight.state());
    Tensor finite = scalar(j.at("overflows")[i] == 0 ? 1 : 0);
    straight.update(finite, kCounts), resumed.update(finite, kCounts);
    EXPECT_EQ(resumed.state().scale, straight.state().scale);
    EXPECT_EQ(resumed.state().growth, straight.state().growth);
    EXPECT_EQ(resumed.state().hysteresis, straight.state().hysteresis);
  }
}

TEST(LossScale, IsConstantWhereItIsStaticAndOneForOtherTypes) {
  PrecisionConfig config = fp16(64, 1, 1, 1);
  config.static_loss_scale = 128;
  LossScale fixed(config, at::kCPU), one({.type = Precision::kBf16}, at::kCPU);
  for (double finite : {1.0, 0.0, 0.0})
    fixed.update(scalar(finite), kCounts), one.update(scalar(finite), kCounts);
  EXPECT_EQ(fixed.state().scale, 128);
  EXPECT_EQ(one.state().scale, 1);
}

// Parameters of fp16, gradients and state of fp32.
TinyOptions half_options(double initial_scale, int64_t window) {
  TinyOptions options;
  options.dtypes = {at::kHalf, at::kFloat, at::kFloat};
  options.precision = fp16(initial_scale, window, 1, 1);
  options.model.hidden_dropout = options.model.attention_dropout = 0;
  return options;
}

// On a CPU the host is the device: an offloaded optimizer is the optimizer itself, also where the
// masters are no views of the parameters.
TEST(Offloaded, OnTheHostIsTheOptimizerItself) {
  at::set_num_threads(1);
  TinyOptions here, there;
  there.optimizer.place = StatePlace::kHost;
  here.dtypes = there.dtypes = {at::kFloat, at::kFloat, at::kDouble};
  TinyResult a = TinyRun({.shard = 2}, here).train(0, 4);
  TinyResult b = TinyRun({.shard = 2}, there).train(0, 4);
  EXPECT_EQ(distance(a.state, b.state), 0);
  EXPECT_EQ(distance(a.steps, b.steps), 0);
}

TEST(SkippedStep, LeavesStateAndLearningRateButTakesNewData) {
  at::set_num_threads(1);
  TinyOptions options = half_options(0x1p40, 1000);
  auto run = [&](int64_t steps) { return TinyRun({}, options).train(0, steps); };
  TinyResult start = run(0), two = run(2);
  ASSERT_FALSE(two.steps[0].finite || two.steps[1].finite);
  EXPECT_EQ(distance(two.state, start.state), 0);
  EXPECT_EQ(two.steps[0].lr, two.steps[1].lr);
  EXPECT_NE(two.steps[0].loss, two.steps[1].loss);
  EXPECT_EQ(two.steps[1].loss_scale, 0x1p39);
}

TEST(SkippedStep, IsNotCountedByTheSchedule) {
  at::set_num_threads(1);
  TinyOptions options = half_options(0x1p30, 4);  // grows into overflows again and again
  TinyResult result = TinyRun({}, options).train(0, 40);
  ScheduleConfig schedule{
      .decay = LrDecay::kCosine, .lr = 1e-3, .min_lr = 1e-4, .decay_iters = 20, .warmup_iters = 2};
  int64_t updates = 0;
  std::set<bool> seen;
  for (const StepReport& step : result.steps) {
    EXPECT_EQ(step.lr, learning_rate(schedule, std::min<int64_t>(updates, 19)));
    updates += step.finite;
    seen.insert(step.finite);
  }
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_GT(updates, 10);
  EXPECT_LT(result.steps.back().loss_scale, 0x1p30);
}

TEST(Fp16, TrainsAsFp64WithinItsPrecision) {
  at::set_num_threads(1);
  TinyOptions half = half_options(0x1p8, 1000), wide = half;
  wide.dtypes = {at::kDouble, at::kDouble, at::kDouble};
  wide.precision = {.type = Precision::kFp64};
  TinyResult a = TinyRun({}, half).train(0, 10), b = TinyRun({}, wide).train(0, 10);
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_TRUE(a.steps[i].finite);
    EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, 2e-3 * b.steps[i].loss);
    EXPECT_NEAR(a.steps[i].grad_norm, b.steps[i].grad_norm, 1e-2 * b.steps[i].grad_norm);
  }
}

}  // namespace
}  // namespace neox
