// Batches that grow, and runs whose length is given in samples.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/batch_schedule.h"
#include "config/estimate.h"
#include "config_fixture.h"

namespace neox {
namespace {

const std::string kRampUp = "rampup_batch_size: [2, 2, 12]\n";
const std::string kSamples = "train_iters: null\ntrain_samples: 100\n";

// tests/oracle/batch_ramp_up.py
TEST_F(ConfigTest, BatchesThatGrowAreThoseOfMegatron) {
  auto golden = nlohmann::json::parse(
      read_file(std::filesystem::path(NEOX_SOURCE_DIR) / "tests/golden/batch_ramp_up.json"));
  EXPECT_EQ(golden.size(), 12u);
  for (const auto& one : golden) {
    Config config =
        load(concat("train_batch_size: ", one["full"].get<int64_t>(),
                    "\nrampup_batch_size: ", one["ramp_up"].dump(),
                    "\ntrain_samples: ", one["samples"].get<int64_t>(), "\ntrain_iters: null"));
    BatchSchedule batches = batch_schedule(config, *config.batch.global);
    EXPECT_EQ(config.train.iters, one["steps"].get<int64_t>()) << one["ramp_up"];
    int64_t step = 0, samples = 0;
    for (const auto& [size, times] : one["sizes"].get<std::vector<std::pair<int64_t, int64_t>>>()) {
      for (int64_t last : {int64_t{0}, times - 1}) {
        EXPECT_EQ(batches.size_at(samples + last * size), size) << one["ramp_up"];
        EXPECT_EQ(batches.samples_of(step + last), samples + last * size) << one["ramp_up"];
        EXPECT_EQ(batches.steps_of(samples + last * size), step + last) << one["ramp_up"];
        EXPECT_EQ(batches.steps_of(samples + last * size + size - 1), step + last);
      }
      step += times, samples += times * size;
    }
    EXPECT_EQ(batches.size_at(samples), one["full"].get<int64_t>()) << one["ramp_up"];
  }
}

TEST_F(ConfigTest, TokensOfABatchThatGrowsAreCounted) {
  Config config = load(kRampUp + kSamples);
  // Of 2 samples 2 steps, of 4 and 6 one, ten of 8, and 2 are left.
  EXPECT_EQ(config.train.iters, 2 + 1 + 1 + 10);
  BatchSchedule batches = batch_schedule(config, 8);
  EXPECT_EQ(tokens_of_run(config, batches, 0, 14), 32 * 94);
  EXPECT_EQ(tokens_of_run(config, batches, 1, 5), 32 * (2 + 4 + 6 + 8));
  std::string text = render(estimate(config, 100, 1), config);
  EXPECT_NE(text.find("3.01 k in 14 steps"), std::string::npos) << text;
  EXPECT_EQ(samples_of_run(config, batches), 100);
}

TEST_F(ConfigTest, SamplesGiveTheLengthOfARunAndOfTheDecay) {
  Config config = load(kSamples + "warmup: 0.1");
  EXPECT_EQ(config.train.iters, 12);
  EXPECT_EQ(config.schedule.decay_iters, 12.5);
  EXPECT_EQ(config.schedule.warmup_iters, 1.25);
  EXPECT_EQ(load(kSamples + "lr_decay_fraction: 0.5").schedule.decay_iters, 50 / 8.0);
  EXPECT_EQ(load(kSamples + "lr_decay_samples: 30").schedule.decay_iters, 30 / 8.0);
  EXPECT_EQ(load(kSamples + "lr_decay_iters: 9").schedule.decay_iters, 9);
  EXPECT_EQ(load("lr_decay_samples: 30").schedule.decay_iters, 30 / 8.0);
  EXPECT_EQ(load("train_iters: 12\ntrain_samples: 100").train.iters, 12);
}

// As a checkpoint keeps it.
TEST_F(ConfigTest, ARunInSamplesIsReadBackFromItsText) {
  for (const std::string& lines : {kSamples, kRampUp + kSamples + "lr_decay_fraction: 0.7",
                                   std::string("lr_decay_samples: 30")}) {
    Config config = load(lines), again = load_config({.texts = {{"saved", config.text()}}});
    EXPECT_EQ(again.text(), config.text());
    EXPECT_EQ(again.schedule.decay_iters, config.schedule.decay_iters);
    EXPECT_EQ(schedule_difference(config, again), "");
  }
}

TEST_F(ConfigTest, ARampUpThatCannotBeIsRefused) {
  const std::pair<std::string, const char*> cases[] = {
      {"rampup_batch_size: [2, 2]\n" + kSamples, "rampup_batch_size has 2 numbers; it needs three"},
      {"rampup_batch_size: [2, 0, 12]\n" + kSamples, "holds 0; it must be positive"},
      {"rampup_batch_size: [2, 4, 12]\n" + kSamples,
       "from 2 by 4 each time the batch does not grow to train_batch_size 8 (a.yml:"},
      {"rampup_batch_size: [8, 2, 12]\n" + kSamples, "does not grow to train_batch_size 8"},
      {kRampUp,
       "give train_samples instead of train_iters: 800 are as many as train_iters (a.yml:"},
      {kRampUp + kSamples + "lr_decay_iters: 10", "give lr_decay_samples instead"},
      {kRampUp + kSamples + "log_gradient_noise_scale: true", "steps of one size"},
      {kRampUp + kSamples + "train_batch_size: null\ntrain_micro_batch_size_per_gpu: 2",
       "needs train_batch_size, to which the batch grows"},
      {kRampUp + "train_iters: null\ntrain_epochs: 2", "give train_samples instead"},
      {"train_samples: 100", "train_iters is 100, but train_samples 100 (a.yml:1) are 12 steps"},
      {kSamples + "train_epochs: 2", "exclude each other"},
      {"train_iters: null\ntrain_samples: 7", "train_samples is 7, less than a step takes"},
      {kSamples + "lr_decay_samples: 30\nlr_decay_iters: 4", "exclude each other"},
      {kSamples + "lr_decay_samples: 30\nlr_decay_fraction: 0.5", "exclude each other"},
      {kSamples + "train_batch_size: null\ntrain_micro_batch_size_per_gpu: 2",
       "train_samples needs train_batch_size"}};
  for (const auto& [lines, message] : cases)
    EXPECT_NE(fails(lines).find(message), std::string::npos) << lines << "\n" << fails(lines);
}

}  // namespace
}  // namespace neox
