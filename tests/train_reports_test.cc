// What a run says of itself beside its losses: evaluations and generated samples.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "run_fixture.h"

namespace neox::testing {
namespace {

TEST(Reports, SamplesAndEvaluationsAreInTheMetrics) {
  Training run;
  Ended ended = run.train({"sample_prompts=[\"the and\"]", "maximum_tokens=5", "eval_interval=10",
                           "eval_iters=2", "tensorboard_dir=" + (run.dir() / "tb")});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(read_file(run.dir() / "log/metrics.jsonl"), R"("samples":"the and)"));
  for (const char* split : {"validation/lm_loss", "validation/lm_loss_ppl"})
    EXPECT_EQ(run.metric(split).size(), 2u) << split;
  EXPECT_EQ(run.metric("test/lm_loss").size(), 1u);
  EXPECT_EQ(run.metric("train/tokens").at(20), 20 * 5 * 16);
  for (int64_t step : run.saved()) EXPECT_GT(run.metric("runtime/save_time").at(step), 0) << step;
  RunLog events = load_runs({run.dir() / "tb"}).at(0);
  EXPECT_EQ(events.series.at("train/lm_loss").size(), 20u);
  EXPECT_TRUE(
      has(read_file(events.path / fs::directory_iterator(run.dir() / "tb")->path()), "the and"));
}

TEST(Reports, SamplesAreTheSameWhereMatricesAreGatheredAroundTheirUse) {
  auto samples = [](const std::string& stage) {
    Training run;
    Ended ended = run.train({"sample_prompts=[\"the and\"]", "eval_interval=5", "eval_iters=1",
                             "zero_optimization.stage=" + stage},
                            {"--spawn", "2"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    Strings found;
    std::istringstream lines(read_file(run.dir() / "log/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (size_t at = line.find("\"samples\""); at != line.npos) found.push_back(line.substr(at));
    return found;
  };
  Strings whole = samples("1");
  EXPECT_EQ(whole.size(), 4u);
  EXPECT_EQ(samples("3"), whole);
}

TEST(Reports, StartsOfARunAreOneRunForWeightsAndBiases) {
  Training run;
  const Strings settings = {"use_wandb=true", "exit_interval=10"};
  std::set<std::string> ids;
  for (int start : {1, 2}) {
    Ended ended = run.train(settings);
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_TRUE(has(ended.err, "for Weights & Biases: wandb sync ")) << ended.err;
    int files = 0;
    for (const auto& entry : fs::directory_iterator(run.dir() / "log/wandb"))
      for (const auto& file : fs::directory_iterator(entry.path())) {
        ids.insert(file.path().filename());
        ++files;
      }
    EXPECT_EQ(files, start);
  }
  EXPECT_EQ(ids.size(), 1u);
}

TEST(Reports, SamplePromptsThatCannotBeContinuedEndTheRunAtItsStart) {
  Training run;
  Ended ended = run.train({"sample_prompts=[\"the" + std::string(300, '!') + "\"]"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "sample_prompts: the prompt 'the!!")) << ended.err;
  EXPECT_FALSE(fs::exists(run.dir() / "log"));
}

}  // namespace
}  // namespace neox::testing
