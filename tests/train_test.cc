// neox-train as users meet it: killed, stopped, started again, at other layouts.
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <csignal>

#include "base/signals.h"
#include "run_fixture.h"
#include "train/run.h"

namespace neox::testing {
namespace {

const Strings kFourRanks = {"pipe_parallel_size=2", "model_parallel_size=2"};

// Both runs came to step `steps` on the same way.
void expect_same(const Training& a, const Training& b, int64_t steps) {
  EXPECT_EQ(static_cast<int64_t>(a.losses().size()), steps);
  EXPECT_EQ(a.losses(), b.losses());
  EXPECT_EQ(a.metric("train/learning_rate"), b.metric("train/learning_rate"));
  EXPECT_EQ(difference(a.tensors(steps), b.tensors(steps)), "");
}

struct Setup {
  const char* name;
  Strings settings, more;
};

void PrintTo(const Setup& setup, std::ostream* out) { *out << setup.name; }

class BitwiseResume : public ::testing::TestWithParam<Setup> {};

TEST_P(BitwiseResume, AfterAKill) {
  const auto& [name, settings, more] = GetParam();
  Training straight, killed;
  ASSERT_EQ(straight.train(settings, more).code, 0);
  Ended first = killed.train_killed_at_save(13, settings + Strings{"extra_save_iters=[13]"}, more);
  ASSERT_EQ(first.code, -SIGKILL) << first.err;
  EXPECT_EQ(killed.saved(), std::vector<int64_t>{10});
  Ended second = killed.train(settings, more);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_TRUE(has(second.err, "resuming from " + killed.step_dir(10))) << second.err;
  expect_same(straight, killed, 20);
}

INSTANTIATE_TEST_SUITE_P(
    All, BitwiseResume,
    ::testing::Values(
        Setup{"fp32", {}, {}}, Setup{"bf16", {"precision=bfloat16"}, {}}, Setup{"fp16", kFp16, {}},
        Setup{"fp32_ranks", kFourRanks, {"--spawn", "4"}},
        Setup{"bf16_ranks", kFourRanks + Strings{"precision=bfloat16"}, {"--spawn", "4"}},
        Setup{"fp16_ranks", kFourRanks + kFp16, {"--spawn", "4"}},
        Setup{"curriculum", {kCurriculum, "precision=bfloat16"}, {}},
        Setup{"curriculum_ranks", kFourRanks + Strings{kCurriculum}, {"--spawn", "4"}},
        Setup{"ramp_up", kRampUp + Strings{"precision=bfloat16"}, {}},
        Setup{"ramp_up_ranks", kFourRanks + kRampUp, {"--spawn", "4"}},
        Setup{"zero3", {"zero_optimization.stage=3", "precision=bfloat16"}, {"--spawn", "2"}}),
    [](const auto& info) { return info.param.name; });

// A run of 100 steps, stopped by a signal once `moment` is said, ends like one that was not.
void expect_stops_and_goes_on(int signal, const std::string& moment, const Strings& settings = {},
                              const Strings& more = {}) {
  const Strings all = settings + Strings{"train_iters=100", "checkpoint_factor=1000"};
  Training straight, stopped;
  ASSERT_EQ(straight.train(all, more).code, 0);
  Child child = stopped.start(all, more);
  ASSERT_TRUE(child.wait_for(moment));
  child.signal(signal);
  Ended ended = child.end();
  ASSERT_EQ(ended.code, 75) << ended.err;
  auto saved = stopped.saved();
  ASSERT_EQ(saved.size(), 1u) << ended.err;
  EXPECT_TRUE(has(ended.err, concat("stopped at step ", saved[0], " of 100: asked to by ",
                                    signal_name(signal))))
      << ended.err;
  EXPECT_EQ(stopped.losses().rbegin()->first, saved[0]);
  ASSERT_EQ(stopped.train(all, more).code, 0);
  expect_same(straight, stopped, 100);
}

TEST(Signals, Sigusr1SavesAndStops) { expect_stops_and_goes_on(SIGUSR1, "step 5/"); }
TEST(Signals, SigtermSavesAndStops) { expect_stops_and_goes_on(SIGTERM, "step 1/"); }
TEST(Signals, AClosedTerminalSavesAndStops) { expect_stops_and_goes_on(SIGHUP, "step 1/"); }
TEST(Signals, StopAllRanks) {
  expect_stops_and_goes_on(SIGUSR1, "step 5/", kFourRanks, {"--spawn", "4"});
}

TEST(Signals, AreHeardInEvaluation) {
  Training run;
  const Strings endless = {"eval_interval=10", "eval_iters=20000"};
  Child child = run.start(endless);
  ASSERT_TRUE(child.wait_for("step 10/20"));
  child.signal(SIGTERM);
  Ended ended = child.end();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_TRUE(has(ended.err, "the evaluation after step 10 stopped in batch ")) << ended.err;
  EXPECT_TRUE(has(ended.err, "stopped at step 10 of 20")) << ended.err;
  EXPECT_EQ(run.saved(), std::vector<int64_t>{10});
  Training straight;
  ASSERT_EQ(straight.train().code, 0);
  ASSERT_EQ(run.train().code, 0);  // other evaluations are no other run
  expect_same(straight, run, 20);
}

TEST(Signals, CutAnEvaluationShortAndTheNextStartDoesIt) {
  Training run;
  Child child = run.start({"eval_interval=10", "eval_iters=20000"});
  ASSERT_TRUE(child.wait_for("step 10/20"));
  child.signal(SIGTERM);
  ASSERT_EQ(child.end().code, 75);
  const Strings short_one = {"eval_interval=10", "eval_iters=1"};
  ASSERT_EQ(run.train(short_one).code, 0);
  auto found = run.metric("validation/lm_loss");
  EXPECT_EQ(found.size(), 2u);
  EXPECT_TRUE(found.contains(10) && found.contains(20));
  // The last one too: the run is not done before.
  Training last;
  Child second = last.start({"eval_interval=20", "eval_iters=20000"});
  ASSERT_TRUE(second.wait_for("step 20/20"));
  second.signal(SIGTERM);
  EXPECT_EQ(second.end().code, 75);
  ASSERT_EQ(last.train({"eval_interval=20", "eval_iters=1"}).code, 0);
  EXPECT_TRUE(last.metric("validation/lm_loss").contains(20));
}

TEST(Signals, BeforeTheFirstStepSaveNothing) {
  Training run;
  Config config = load_config({.files = {run.dir() / "tiny.yml"}});
  StopFlag stop{SIGTERM};
  for (int ranks : {1, 3}) {
    std::string error = error_of([&] {
      train_threads(config, ranks, {at::kCPU, stop, "life", {}});
    });
    EXPECT_TRUE(has(error, "75: ")) << error;
    EXPECT_TRUE(has(error, "asked to stop by SIGTERM before the first step")) << error;
  }
  EXPECT_TRUE(!fs::exists(run.save()) || run.saved().empty());
}

TEST(Saving, ExitIntervalEndsTheRunAndTheNextGoesOn) {
  Training straight, parts;
  ASSERT_EQ(straight.train().code, 0);
  const Strings seven = {"exit_interval=7", "checkpoint_factor=1000"};
  for (std::vector<int64_t> saved : {std::vector<int64_t>{7}, {7, 14}, {7, 14, 20}}) {
    Ended ended = parts.train(seven);
    ASSERT_EQ(ended.code, 0);
    EXPECT_EQ(parts.saved(), saved);
    EXPECT_EQ(has(ended.err, "exit_interval is 7; the same command goes on"), saved.back() < 20);
  }
  expect_same(straight, parts, 20);
}

TEST(Saving, ABatchOrRowsThatAreNotTheRunsAreNamedAndNotTaken) {
  Training run;
  ASSERT_EQ(run.train({"exit_interval=10"}).code, 0);
  Ended ended = run.train({"train_batch_size=10", "padded_vocab_size=100000"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(
      ended.err, "padded_vocab_size is 100000, but the embedding of " + run.step_dir(10) + " has "))
      << ended.err;
  EXPECT_TRUE(has(ended.err, "train_batch_size is 10, but the run of " + run.step_dir(10) +
                                 " began with 5, which it keeps"))
      << ended.err;
  EXPECT_EQ(run.state(20).consumed_samples, 20 * 5);
}

TEST(Saving, ExtraStepsMayBeginWithZero) {
  Training run;
  ASSERT_EQ(run.train({"extra_save_iters=[0, 3]"}).code, 0);
  EXPECT_EQ(run.saved(), (std::vector<int64_t>{0, 3, 10, 20}));
  EXPECT_EQ(run.state(0).consumed_samples, 0);
  std::string other = run.dir() / "other";
  ASSERT_EQ(run.train({"iteration=0", "save=" + other}).code, 0);
  EXPECT_EQ(difference(tensors_of(other + "/global_step20"), run.tensors(20)), "");
}

TEST(Saving, InTheBackgroundChangesNothing) {
  for (const Strings& more : {Strings{}, Strings{"--spawn", "4"}}) {
    Strings settings = more.empty() ? Strings{} : kFourRanks;
    settings.push_back("checkpoint_factor=1");
    Training background, waiting;
    ASSERT_EQ(background.train(settings, more).code, 0);
    ASSERT_EQ(waiting.train(settings + Strings{"async_save=false"}, more).code, 0);
    EXPECT_EQ(background.saved(), waiting.saved());
    expect_same(background, waiting, 20);
    for (int64_t step : {1, 2, 7, 19})
      EXPECT_EQ(difference(background.tensors(step), waiting.tensors(step)), "") << step;
  }
}

TEST(Saving, KeepsTheLastCheckpoints) {
  Training run;
  ASSERT_EQ(run.train({"checkpoint_factor=3", "keep_last_n_checkpoints=2"}).code, 0);
  EXPECT_EQ(run.saved(), (std::vector<int64_t>{18, 20}));
}

// The parameters alone.
Tensors weights(Tensors all) {
  std::erase_if(all, [](const auto& entry) { return !entry.first.starts_with("param/"); });
  return all;
}

TEST(Finetune, BeginsFromTheWeightsAloneAndThenGoesOnFromItsOwn) {
  Training first, second;
  ASSERT_EQ(first.train({"train_iters=10"}).code, 0);
  Strings settings = {"finetune=true", "load=" + first.save(), "extra_save_iters=[0]"};
  Ended begun = second.train(settings + Strings{"exit_interval=10"});
  ASSERT_EQ(begun.code, 0) << begun.err;
  EXPECT_TRUE(has(begun.err, "starting from the weights of " + first.step_dir(10))) << begun.err;
  EXPECT_EQ(difference(weights(second.tensors(0)), weights(first.tensors(10))), "");
  EXPECT_EQ(second.state(10).consumed_samples, 50);
  Ended again = second.train(settings);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(has(again.err, "resuming from " + second.step_dir(10))) << again.err;
  Training straight;
  ASSERT_EQ(straight.train(settings).code, 0);
  expect_same(straight, second, 20);
}

TEST(Finetune, MayTurnByOtherAngles) {
  Training first, second, straight;
  ASSERT_EQ(first.train({"train_iters=10"}).code, 0);
  Strings longer = {"rope_scaling={rope_type: linear, factor: 2}", "rotary_emb_base=20000"};
  Ended own = first.train(longer);
  EXPECT_EQ(own.code, 64);
  EXPECT_TRUE(has(own.err, "holds another model")) << own.err;
  Strings settings = Strings{"finetune=true", "load=" + first.save(), "exit_interval=1"};
  Ended ended = second.train(settings + longer);
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.err, "otherwise than in " + first.step_dir(10))) << ended.err;
  EXPECT_TRUE(has(ended.err, "rope_scaling.factor: null, not 2")) << ended.err;
  ASSERT_EQ(straight.train(settings).code, 0);
  EXPECT_NE(second.losses().at(1), straight.losses().at(1));
}

TEST(Finetune, IsRefusedIntoTheDirectoryItBeginsFrom) {
  Training run;
  ASSERT_EQ(run.train({"train_iters=10"}).code, 0);
  for (const char* spelling : {"", "/", "/../save"}) {
    Ended ended = run.train({"finetune=true", "save=" + run.save() + spelling});
    EXPECT_EQ(ended.code, 64);
    EXPECT_TRUE(has(ended.err, "give save another directory")) << ended.err;
  }
}

// It would train that run on instead, and say at its end that all is done.
TEST(Finetune, GoesOnFromSaveOnlyWhereItBeganFromLoad) {
  Training one, other, tuned, before;
  for (const Training* run : {&one, &other, &before})
    ASSERT_EQ(run->train({"train_iters=10"}).code, 0);
  for (const char* how : {"finetune=true", "no_load_optim=true"}) {
    fs::remove_all(tuned.save());
    ASSERT_EQ(tuned.train({how, "load=" + one.save(), "min_lr=0"}).code, 0) << how;
    for (const Training* run : {&tuned, &before}) {
      Ended ended = run->train({how, "load=" + other.save(), "min_lr=0"});
      EXPECT_EQ(ended.code, 64) << how;
      EXPECT_TRUE(has(ended.err, "of an earlier run, but load is " + other.save())) << ended.err;
      EXPECT_TRUE(has(ended.err, " and leave ")) << ended.err;
    }
  }
  fs::rename(one.save(), one.save() + "-moved");
  Strings moved = {"no_load_optim=true", "load=" + one.save() + "-moved", "min_lr=0"};
  EXPECT_EQ(tuned.train(moved).code, 0);
}

TEST(Finetune, WithoutTheOptimizersStateProgressStays) {
  Training first, second;
  ASSERT_EQ(first.train({"exit_interval=10"}).code, 0);
  Ended ended = second.train({"no_load_optim=true", "load=" + first.save(), "min_lr=0"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(second.losses().begin()->first, 11);
  EXPECT_EQ(second.state(20).optimizer_steps, 10);
  EXPECT_EQ(second.state(20).consumed_samples, 100);
}

TEST(Finetune, BeginsFromWhatWasConverted) {
  Training first, second;
  ASSERT_EQ(first.train({"train_iters=10"}).code, 0);
  for (const Strings& step :
       {Strings{"--to", "hf", first.save(), second.dir() / "hf"},
        Strings{"--to", "neox.cpp", second.dir() / "hf", second.dir() / "in"}})
    ASSERT_EQ(Child(Strings{program("neox-convert")} + step).end().code, 0);
  Strings load = {"load=" + second.dir() / "in", "extra_save_iters=[0]"};
  Ended refused = second.train(load);
  EXPECT_EQ(refused.code, 64);
  EXPECT_TRUE(has(refused.err, "holds weights alone, as neox-convert writes them")) << refused.err;
  Ended other = second.train(load + Strings{"finetune=true", "num_layers=1"});
  EXPECT_EQ(other.code, 64);
  for (const char* part : {"num_layers: 2, not 1", "/in/model.yml"})
    EXPECT_TRUE(has(other.err, part)) << other.err;
  Ended ended = second.train(load + Strings{"finetune=true"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(difference(weights(second.tensors(0)), weights(first.tensors(10))), "");
}

TEST(Saving, OnALogScale) {
  Training run;
  ASSERT_EQ(run.train({"checkpoint_factor=2", "checkpoint_scale=log"}).code, 0);
  EXPECT_EQ(run.saved(), (std::vector<int64_t>{1, 2, 4, 8, 16, 20}));
}

TEST(Saving, ADoneRunStartedAgainChangesNothing) {
  Training run;
  ASSERT_EQ(run.train().code, 0);
  Tensors end = run.tensors(20);
  auto losses = run.losses();
  Ended again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(run.saved(), (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(difference(run.tensors(20), end), "");
  EXPECT_EQ(run.losses(), losses);
}

TEST(GoingBack, WantsLaterCheckpointsOutOfTheWayAndGoesOnFromItsOwn) {
  Training run;
  ASSERT_EQ(run.train({"checkpoint_factor=5"}).code, 0);
  const Strings back = {"iteration=5", "checkpoint_factor=5"};
  Ended refused = run.train(back);
  EXPECT_EQ(refused.code, 64);
  EXPECT_TRUE(has(refused.err, "also holds global_step20 of a run that")) << refused.err;
  for (int64_t step : {10, 15, 20}) fs::remove_all(run.step_dir(step));
  ASSERT_EQ(run.train(back + Strings{"exit_interval=10", "keep_last_n_checkpoints=1"}).code, 0);
  Ended again = run.train(back);
  EXPECT_EQ(again.code, 0);
  EXPECT_TRUE(has(again.err, "resuming from " + run.step_dir(10))) << again.err;
  // It looks, and trains no more.
  EXPECT_EQ(run.train({"iteration=10", "train_iters=10", "override_lr_scheduler=true"}).code, 0);
}

TEST(Elastic, ThreeRanksGoOnWhereOneStopped) {
  Training one, changed;
  ASSERT_EQ(one.train().code, 0);
  ASSERT_EQ(changed.train({"exit_interval=10"}).code, 0);
  Ended ended = changed.train({"zero_optimization.stage=1"}, {"--spawn", "3"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.err, "shard 3 x tp 1, batch of 5 samples = 2 x 3 ranks x 1")) << ended.err;
  EXPECT_TRUE(has(ended.err, "warning: the batch of 5 samples")) << ended.err;
  for (auto [step, loss] : one.losses()) EXPECT_NEAR(changed.losses().at(step), loss, 1e-5) << step;
  EXPECT_EQ(changed.state(20).consumed_samples, 100);
}

// A schedule is compared on resume; 10 steps of decay from 0.01 to 0.001, then 12 asked for.
TEST(Schedule, OfAResumedRunIsTheOldOneUnlessAnotherIsChosen) {
  const Strings first = {"train_iters=10", "exit_interval=6", "warmup=0"},
                longer = {"train_iters=12", "warmup=0"};
  Training kept, overridden;
  for (Training* run : {&kept, &overridden}) ASSERT_EQ(run->train(first).code, 0);
  Ended refused = kept.train(longer);
  EXPECT_EQ(refused.code, 64);
  EXPECT_TRUE(has(refused.err, "lr_decay_iters is 12, but")) << refused.err;
  EXPECT_TRUE(has(refused.err, "began with 10")) << refused.err;
  const std::string rises = "ends with step 10, behind which NeoX's formula lets the learning rate";
  EXPECT_TRUE(has(refused.err, rises)) << refused.err;
  Ended told = kept.train(longer + Strings{"use_checkpoint_lr_scheduler=true"});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_TRUE(has(told.err, rises)) << told.err;
  EXPECT_EQ(overridden.train(longer + Strings{"override_lr_scheduler=true"}).code, 0);
  auto rate = [](double part) { return 0.001 + 0.0045 * (std::cos(M_PI * part) + 1); };
  EXPECT_NEAR(kept.metric("train/learning_rate")[8], rate(0.7), 1e-9);
  EXPECT_NEAR(overridden.metric("train/learning_rate")[8], rate(7.0 / 12), 1e-9);
  EXPECT_EQ(kept.train(longer).code, 64);  // the schedule that was kept is the run's
}

TEST(Optimizer, GoesOnAsTheRunBegan) {
  Training run;
  ASSERT_EQ(run.train({"train_iters=4"}).code, 0);
  Strings lion = run.command({"train_iters=4", "optimizer={type: Lion, params: {lr: 0.01}}"});
  Ended ended = Child(lion).end();
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "lion_m, but")) << ended.err;
  EXPECT_TRUE(has(ended.err, "adam_m, adam_v")) << ended.err;
}

TEST(NotFinite, EndsTheRunWithStepAndCure) {
  Training run;
  Ended ended = run.train({"optimizer.params.lr=1e30", "min_lr=1e30", "gradient_clipping=0"});
  EXPECT_EQ(ended.code, 78);
  EXPECT_TRUE(has(ended.err, "neox-train: step ")) << ended.err;
  EXPECT_TRUE(has(ended.err, "the loss is nan")) << ended.err;
  EXPECT_FALSE(has(ended.err, "-nan")) << ended.err;
  EXPECT_TRUE(has(ended.err, "a lower learning rate")) << ended.err;
}

TEST(Reports, ACompleteRunStartedAgainEvaluatesTheSameSamples) {
  Training run;
  const Strings settings = {"eval_interval=10", "eval_iters=2"};
  ASSERT_EQ(run.train(settings).code, 0);
  double first = run.metric("validation/lm_loss").at(20);
  ASSERT_EQ(run.train(settings).code, 0);
  EXPECT_EQ(run.metric("validation/lm_loss").at(20), first);
}

}  // namespace
}  // namespace neox::testing
