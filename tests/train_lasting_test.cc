// What would cost a run its work: a log that nobody reads, a second run in its directory, a full
// disk of metrics, another precision or optimizer.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <limits>
#include <thread>

#include "run_fixture.h"
#include "tokenizer/of_config.h"
#include "train/run.h"
#include "train/start.h"

namespace neox::testing {
namespace {

TEST(Lasting, ALogThatNobodyReadsEndsNoRun) {
  Training run;
  std::string words;
  for (const std::string& word : run.command({})) words += "'" + word + "' ";
  Ended ended =
      Child({"/bin/bash", "-c", words + "2>&1 | head -n 2 > /dev/null; exit ${PIPESTATUS[0]}"})
          .end();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(run.saved(), (std::vector<int64_t>{10, 20}));
}

TEST(Lasting, ASecondRunInTheDirectoryIsRefusedAndTheFirstGoesOn) {
  Training run;
  const Strings settings = {"train_iters=400", "checkpoint_factor=1000", "log_interval=1"};
  Child first = run.start(settings);
  ASSERT_TRUE(first.wait_for("step 2/"));
  Ended second = run.train(settings);
  EXPECT_EQ(second.code, 64);
  EXPECT_TRUE(has(second.err, "is in use: the run ")) << second.err;
  Ended ended = first.end();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(run.losses().size(), 400u);
  EXPECT_EQ(run.train(settings).code, 0);  // after its end the directory is free
}

TEST(Lasting, ASecondRunDoesNotBeginFromBehindWhatIsSavedMeanwhile) {
  Training run;
  ASSERT_EQ(run.train().code, 0);
  fs::rename(run.step_dir(20), run.dir() / "step20");
  write_file_atomically(run.save() + "/latest", "global_step10\n");
  Child child = run.start(
      {}, {}, {.environment = Training::fault(run.save() + "/owner", 0, "NEOX_FAULT_DELAY=1000")});
  ASSERT_TRUE(child.wait_for("resuming from " + run.step_dir(10)));
  fs::rename(run.dir() / "step20", run.step_dir(20));
  write_file_atomically(run.save() + "/latest", "global_step20\n");
  Ended ended = child.end();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_TRUE(has(ended.err, "another run has saved global_step20 into " + run.save() +
                                 " while this one began from global_step10"))
      << ended.err;
  Ended again = run.train();
  EXPECT_EQ(again.code, 0);
  EXPECT_TRUE(has(again.err, "20 of 20")) << again.err;
}

TEST(Lasting, ARunThatIsTakenOverEndsAtOnce) {
  Training run;
  Child child = run.start({"train_iters=1000000", "checkpoint_factor=1000000"});
  ASSERT_TRUE(child.wait_for("step 2/"));
  write_file_atomically(fs::path(run.save()) / "owner", "9.0.1");
  Ended ended = child.end();
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "was taken over by a later run (9.0.1)")) << ended.err;
}

TEST(Lasting, AFullDiskOfMetricsIsAWarning) {
  Training run;
  std::string log = run.dir() / "log";
  Ended ended =
      run.train({}, {}, {.environment = Training::fault(log, ENOSPC, "NEOX_FAULT_BYTES=9000")});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.err, "No space left on device")) << ended.err;
  EXPECT_EQ(run.saved(), (std::vector<int64_t>{10, 20}));
  auto losses = run.losses();  // whole lines as far as they go
  EXPECT_GT(losses.size(), 0u);
  EXPECT_LT(losses.size(), 20u);
}

TEST(Lasting, Fp16BeginsWithItsOwnScaleWhereTheRunHadNone) {
  Training run;
  const Strings fp16 = {"precision=fp16", "fp16.initial_scale_power=12"};
  ASSERT_EQ(run.train({"exit_interval=10"}).code, 0);
  ASSERT_EQ(run.train(fp16).code, 0);
  EXPECT_EQ(run.metric("train/loss_scale").at(11), 4096);
  // A part in fp32 between two in fp16 leaves the scale.
  Training mixed;
  ASSERT_EQ(mixed.train({"exit_interval=5", "precision=fp16", "fp16.initial_scale_power=13"}).code,
            0);
  ASSERT_EQ(mixed.train({"exit_interval=10"}).code, 0);
  ASSERT_EQ(mixed.train(fp16).code, 0);
  EXPECT_EQ(mixed.metric("train/loss_scale").at(11), 8192);
}

TEST(Lasting, AnotherOptimizerIsRefused) {
  Training run;
  ASSERT_EQ(run.train({"exit_interval=10"}).code, 0);
  Ended ended = run.train(
      {"optimizer.type=sgd", "optimizer.params.betas=null", "override_lr_scheduler=true"});
  EXPECT_EQ(ended.code, 64) << ended.err;
  EXPECT_TRUE(has(ended.err, "goes on from the states none, but ")) << ended.err;
}

TEST(Lasting, WhatChangedSinceTheLastStartIsTold) {
  Training run;
  ASSERT_EQ(run.train({"exit_interval=10"}).code, 0);
  Ended ended = run.train({"exit_interval=15", "weight_decay=0.2"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(has(ended.err,
                  "not as in the run so far: exit_interval 15 (before: 10), weight_decay 0.2 "
                  "(before: 0.1)\n"))
      << ended.err;
  ended = run.train({"exit_interval=15", "weight_decay=0.2"});
  EXPECT_TRUE(has(ended.err, "resuming from")) << ended.err;
  EXPECT_FALSE(has(ended.err, "not as in the run so far")) << ended.err;
  ended = run.train({"exit_interval=15", "weight_decay=0.2", "optimizer.params.betas=null"});
  EXPECT_TRUE(has(ended.err, "run so far: optimizer.params.betas [0.9, 0.999] (before: [0.9, 0.95"))
      << ended.err;
}

// Keys that another spelling of the same model does not read are no change.
TEST(Lasting, AnOldSpellingOfTheModelIsNoChange) {
  Training run;
  const Strings llama = {"mlp_type=llama", "activation=silu", "exit_interval=10"};
  ASSERT_EQ(run.train(llama).code, 0);
  Ended ended = run.train(llama);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.err, "resuming from")) << ended.err;
  EXPECT_FALSE(has(ended.err, "not as in the run so far")) << ended.err;
}

TEST(Lasting, ARunThatBeganFromAnotherGoesOnFromItsOwn) {
  Training run;
  ASSERT_EQ(run.train({"exit_interval=10"}).code, 0);
  const Strings branch = {"save=" + (run.dir() / "branch"), "exit_interval=5"};
  ASSERT_EQ(run.train(branch).code, 0);
  Ended ended = run.train(branch);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.err, "resuming from " + (run.dir() / "branch/global_step15"))) << ended.err;
  // One that began elsewhere is not its own.
  Strings other = branch;
  other.push_back("load=" + (run.dir() / "elsewhere"));
  ended = run.train(other);
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "holds global_step20 of an earlier run")) << ended.err;
}

TEST(Lasting, DataThatBecomesShorterIsNamed) {
  Training run;
  std::string data = own_data(run);
  Child child = run.start({"data_path=" + data, "train_iters=1000000"});
  ASSERT_TRUE(child.wait_for("step 2/"));
  fs::resize_file(data + ".bin", 0);
  Ended ended = child.end();
  EXPECT_EQ(ended.code, 74);
  EXPECT_TRUE(has(ended.err, "became shorter or cannot be read")) << ended.err;
}

struct Ranks {
  const char* name;
  Strings settings, more;
};

class LastingOn : public ::testing::TestWithParam<Ranks> {};

INSTANTIATE_TEST_SUITE_P(
    Layouts, LastingOn,
    ::testing::Values(
        Ranks{"one", {}, {}}, Ranks{"data", {}, {"--spawn", "3"}},
        Ranks{"pipeline",
              {"pipe_parallel_size=2", "model_parallel_size=2", "train_micro_batch_size_per_gpu=1",
               "reset_attention_mask=true"},
              {"--spawn", "4"}},
        Ranks{"fp16",
              {"precision=fp16", "fp16.initial_scale_power=16", "fp16.hysteresis=3",
               "fp16.loss_scale_window=4"},
              {"--spawn", "2"}},
        Ranks{"zero3", {"zero_optimization.stage=3", "async_save=true"}, {"--spawn", "2"}}),
    [](const auto& c) { return c.param.name; });

// Of all ranks one meets the token; the run ends as it would have with a checkpoint there.
TEST_P(LastingOn, ATokenThatIsNoneCostsNoStep) {
  Training straight, run;
  Strings settings = {"train_iters=100", "checkpoint_factor=1000"};
  settings.insert(settings.end(), GetParam().settings.begin(), GetParam().settings.end());
  ASSERT_EQ(straight.train(settings, GetParam().more).code, 0);
  std::string data = own_data(run);
  settings.push_back("data_path=" + data);
  std::string good = damage(data, 1 / 3.);
  Ended ended = run.train(settings, GetParam().more);
  EXPECT_EQ(ended.code, 74);
  EXPECT_TRUE(has(ended.err, "outside the vocabulary")) << ended.err;
  ASSERT_EQ(run.saved().size(), 1u) << ended.err;
  EXPECT_EQ(run.losses().rbegin()->first, run.saved()[0]);
  write_file_atomically(data + ".bin", good);
  ASSERT_EQ(run.train(settings, GetParam().more).code, 0);
  EXPECT_EQ(run.losses(), straight.losses());
  EXPECT_EQ(run.metric("train/loss_scale"), straight.metric("train/loss_scale"));
  EXPECT_EQ(difference(run.tensors(100), straight.tensors(100)), "");
}

TEST_P(LastingOn, ATokenThatIsNoneInAnEvaluationCostsNoStep) {
  Training run;
  std::string data = own_data(run);
  damage(data, 0.94);
  Strings settings = {"data_path=" + data, "train_iters=20", "checkpoint_factor=1000",
                      "eval_interval=7", "eval_iters=200"};
  settings.insert(settings.end(), GetParam().settings.begin(), GetParam().settings.end());
  Ended ended = run.train(settings, GetParam().more);
  EXPECT_EQ(ended.code, 74);
  EXPECT_TRUE(has(ended.err, "outside the vocabulary")) << ended.err;
  EXPECT_EQ(run.saved(), std::vector<int64_t>{7}) << ended.err;
}

TEST(Saving, AFailureOfTheLastSaveIsTheRunsOwn) {
  Training run;
  Ended ended =
      run.train({"exit_interval=15"}, {},
                {.environment = Training::fault(run.step_dir(15), EIO, "NEOX_FAULT_CALLS=5")});
  EXPECT_EQ(ended.code, 74) << ended.err;
  EXPECT_EQ(run.saved(), std::vector<int64_t>{10});
}

// What fails is the save of step 20 and the next one.
TEST(Saving, AFullDiskInTheBackgroundEndsTheRunAndTheNextGoesOn) {
  for (const Strings& more : {Strings{}, Strings{"--spawn", "4"}}) {
    Strings settings = {"lr_decay_iters=20", "extra_save_iters=[21]", "train_iters=200000"};
    if (!more.empty())
      settings.insert(settings.begin(), {"pipe_parallel_size=2", "model_parallel_size=2"});
    Training run;
    Ended ended = run.train(settings, more,
                            {.environment = Training::fault(run.save() + "/global_step2", ENOSPC,
                                                            "NEOX_FAULT_BYTES=3000")});
    EXPECT_EQ(ended.code, 74) << ended.err;
    EXPECT_TRUE(has(ended.err, "cannot save " + run.step_dir(20) + ": rank ")) << ended.err;
    EXPECT_TRUE(has(ended.err, "No space left on device (ENOSPC)")) << ended.err;
    EXPECT_EQ(run.saved(), std::vector<int64_t>{10});
    settings.back() = "train_iters=20";
    Ended next = run.train(settings, more);
    EXPECT_TRUE(has(next.err, "resuming from " + run.step_dir(10))) << next.err;
    EXPECT_EQ(next.code, 0) << next.err;
  }
}

TEST(Saving, AFailureInTheBackgroundCostsNoStep) {
  Training run;
  Ended ended = run.train(
      {}, {}, {.environment = Training::fault(run.step_dir(10), EIO, "NEOX_FAULT_CALLS=5")});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.err, "warning: cannot save " + run.step_dir(10))) << ended.err;
  EXPECT_TRUE(has(ended.err, "ends if the next save fails too")) << ended.err;
  EXPECT_EQ(run.saved(), std::vector<int64_t>{20});
}

// Where no memory is left for a copy, and that step cannot be saved.
Exit train_waiting(const Training& run, int64_t step, const Strings& settings) try {
  fs::create_directories(run.save());
  write_file_atomically(run.step_dir(step), "in the way");
  StopFlag stop{0};
  RunPlace place{at::kCPU, stop, "life", {}};
  place.ranks_here = std::numeric_limits<int>::max();
  Config config = load_config({.files = {run.dir() / "tiny.yml"}, .overrides = settings});
  return train_threads(config, 1, place);
} catch (const Error& e) { return e.exit(); }

TEST(Saving, AFailureWhileTrainingWaitsCostsNoStep) {
  Training run;
  EXPECT_EQ(train_waiting(run, 10, {}), Exit::kDone);
  EXPECT_EQ(run.saved(), std::vector<int64_t>{20});
}

TEST(Saving, AFailureOfTheLastSaveWhileTrainingWaitsIsTheRunsOwn) {
  Training run;
  EXPECT_EQ(train_waiting(run, 15, {"exit_interval=15"}), Exit::kIo);
  EXPECT_EQ(run.saved(), std::vector<int64_t>{10});
}

TEST(Lasting, ACheckpointOfNoStepIsGoneOnFrom) {
  Training run;
  ASSERT_EQ(run.train_killed_at_save(10, {"extra_save_iters=[0]"}).code, -SIGKILL);
  ASSERT_EQ(run.saved(), std::vector<int64_t>{0});
  Ended ended = run.train({"extra_save_iters=[0]", "eval_interval=10", "eval_iters=1"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(run.losses().size(), 20u);
}

TEST(Lasting, TheScriptOfTheJobHearsOfCheckpoints) {
  Training run;
  std::string file = run.dir() / "failures";
  const ChildOptions told = {.environment = {"NEOX_FAILURES_FILE=" + file}};
  ASSERT_EQ(run.train({"checkpoint_factor=1000", "save=null", "load=null"}, {}, told).code, 0);
  EXPECT_FALSE(fs::exists(file));
  for (const char* how : {"async_save=false", "async_save=true"}) {
    ASSERT_EQ(run.train({how}, {}, told).code, 0);
    ASSERT_TRUE(fs::exists(file)) << how;
    EXPECT_EQ(read_file(file), "saved\n");
    fs::remove(file);
    fs::remove_all(run.save());
  }
}

// The job's next life would be refused by what this one saves.
TEST(Lasting, AJobThatCouldNotGoOnIsRefusedAtItsFirstStart) {
  Training run;
  const ChildOptions told = {.environment = {"NEOX_FAILURES_FILE=" + (run.dir() / "failures")}};
  Ended ended = run.train({"load=null"}, {}, told);
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "would not go on from its checkpoint; add load: " + run.save()))
      << ended.err;
}

// Accumulation is computed anew, also where all three numbers of a batch are given, and one that
// the configuration makes by its parts does not change a run's without a word.
TEST(Lasting, ARunKeepsABatchThatIsGivenByItsParts) {
  Training one, changed;
  Strings batch = {"train_batch_size=8", "train_micro_batch_size_per_gpu=2",
                   "gradient_accumulation_steps=4"};
  ASSERT_EQ(one.train(batch).code, 0);
  ASSERT_EQ(changed.train(batch + Strings{"exit_interval=10"}).code, 0);
  Ended ended = changed.train(batch, {"--spawn", "2"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  for (auto [step, loss] : one.losses()) EXPECT_NEAR(changed.losses().at(step), loss, 1e-5) << step;
  Ended parts = changed.train({"train_batch_size=null", "train_micro_batch_size_per_gpu=2",
                               "gradient_accumulation_steps=8"});
  EXPECT_EQ(parts.code, 0);
  EXPECT_TRUE(has(parts.err, "make a batch of 16 on 1 data-parallel rank, but the run of"))
      << parts.err;
  EXPECT_FALSE(has(parts.err, "gradient_accumulation_steps 8 (before")) << parts.err;
}

TEST(Lasting, SamplesOfOneTokenInBatches) {
  Training run;
  EXPECT_EQ(run.train({"seq_length=1", "precision=fp64", "train_iters=2"}).code, 0);
}

// The log has a line for each file that is written without a lock.
TEST(Lasting, WithoutLocksOneRankBuildsTheIndexOfSamples) {
  Training run;
  std::string cache = run.dir() / "cache";
  Strings environment = Training::fault(cache, 0, "NEOX_FAULT_DELAY=100") +
                        Strings{concat("NEOX_FAULT_LOCKS=", ENOSYS)};
  Ended ended = run.train({"data_cache_path=" + cache, "train_iters=1"}, {"--spawn", "4"},
                          {.environment = environment});
  ASSERT_EQ(ended.code, 0) << ended.err;
  size_t first = ended.err.find(".samples.tmp-");
  EXPECT_NE(first, std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find(".samples.tmp-", first + 1), std::string::npos) << ended.err;
}

TEST(Lasting, AnIterationWithoutLoadIsRefused) {
  Training run;
  Ended ended = run.train({"load=null", "iteration=5"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "iteration is given, but load is not")) << ended.err;
}

// One rank takes twice as long for what two have saved; what is read elsewhere says nothing of the
// disk of `save`.
TEST(Lasting, TheNextLifeKnowsHowLongASaveTakes) {
  Training run;
  ASSERT_EQ(run.train({"exit_interval=10"}, {"--spawn", "2"}).code, 0);
  double took = run.state(10).save_seconds;
  auto expected = [&](const Strings& settings) {
    Config config = load_config({.files = {run.dir() / "tiny.yml"}, .overrides = settings});
    std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(config);
    AloneControl control;
    return find_start(config, tokenizer.get(), 1, control).state.save_seconds;
  };
  EXPECT_GT(took, 0);
  EXPECT_EQ(expected({}), 2 * took);
  EXPECT_EQ(expected({"save=" + (run.dir() / "elsewhere")}), 0);
}

// A slow step makes the end of the allocation look near, and the one behind it far again.
TEST(Lasting, AStopThatWasAskedForStaysAskedFor) {
  Training run;
  std::string end = concat("NEOX_JOB_END_TIME=", std::time(nullptr) + 20);
  Child child = run.start({"train_iters=1000000", "checkpoint_factor=1000000"}, {},
                          {.environment = {end, "SLURM_JOB_END_TIME="}});
  ASSERT_TRUE(child.wait_for("step 5/"));
  child.signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  child.signal(SIGCONT);
  Ended ended = child.end();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_TRUE(has(ended.err, "of 1000000: the allocation ends in ")) << ended.err;
  EXPECT_EQ(run.saved().size(), 1U);
}

}  // namespace
}  // namespace neox::testing
