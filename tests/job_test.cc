// neox-train as processes that mpirun starts: the numbers of one process, ranks left over, and
// processes that were started differently.
#include <gtest/gtest.h>

#include <cstdlib>

#include "run_fixture.h"

namespace neox::testing {
namespace {

const Strings kFp64 = {"precision=fp64", "padded_vocab_size=304"};

class Mpirun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("mpirun --version > /dev/null 2>&1") != 0)
      GTEST_SKIP() << "mpirun is not there";
  }
  static Ended end(const Strings& command, const Strings& environment = {}) {
    return Child(command,
                 {.environment = Strings{"OMPI_ALLOW_RUN_AS_ROOT=1",
                                         "ASAN_OPTIONS=detect_leaks=0" /* Open MPI's own */,
                                         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"} +
                                 environment,
                  .limit_seconds = 120})
        .end();
  }
  static Ended train(const Training& run, int ranks, const Strings& settings,
                     const Strings& environment = {}) {
    return end(Strings{"/usr/bin/env", "mpirun", "--oversubscribe", "-np", std::to_string(ranks)} +
                   run.command(settings),
               environment);
  }
};

// With a colon between them. mpirun of Open MPI 5.0.7, which Debian 13 has, crashes there.
class MpirunOfTwo : public Mpirun {
 protected:
  void SetUp() override {
    Mpirun::SetUp();
    if (IsSkipped()) return;
    Ended two = end({"/usr/bin/env", "mpirun", "--oversubscribe", "-np", "1", "/bin/true", ":",
                     "-np", "1", "/bin/true"});
    if (two.code != 0) GTEST_SKIP() << "this mpirun starts no two programs: " << two.code;
  }
};

void expect_near(const Training& a, const Training& b, double tolerance) {
  auto x = a.losses(), y = b.losses();
  ASSERT_EQ(x.size(), 20u);
  ASSERT_EQ(y.size(), 20u);
  for (auto [step, loss] : x) EXPECT_NEAR(loss, y.at(step), tolerance * loss) << step;
}

struct Case {
  const char* name;
  Strings settings;
  int ranks;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Layouts : public Mpirun, public ::testing::WithParamInterface<Case> {};

TEST_P(Layouts, GiveTheLossesOfOneProcess) {
  Training one, many;
  const auto& [name, settings, ranks] = GetParam();
  ASSERT_EQ(one.train(kFp64).code, 0);
  Ended ended = train(many, ranks, kFp64 + settings);
  ASSERT_EQ(ended.code, 0) << ended.err;
  expect_near(one, many, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(All, Layouts,
                         ::testing::Values(Case{"tp2", {"model_parallel_size=2"}, 2},
                                           Case{"pp2", {"pipe_parallel_size=2"}, 2},
                                           Case{"shard2", {"zero_optimization.stage=1"}, 2},
                                           Case{"tp2_replicate2", {"model_parallel_size=2"}, 4}),
                         [](const auto& info) { return info.param.name; });

TEST_F(Mpirun, RanksLeftOverIdleUntilTheEnd) {
  Training one, many;
  ASSERT_EQ(one.train(kFp64).code, 0);
  Ended ended = train(many, 3, kFp64 + Strings{"model_parallel_size=2"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("takes 2 of 3 ranks; idle: rank 2 on "), std::string::npos) << ended.err;
  expect_near(one, many, 1e-12);
}

TEST_F(Mpirun, ARunOfProcessesResumesAsOneProcess) {
  Training straight, parted;
  ASSERT_EQ(straight.train(kFp64).code, 0);
  Ended ended = train(parted, 2, kFp64 + Strings{"model_parallel_size=2", "exit_interval=10"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  ended = parted.train(kFp64);
  ASSERT_EQ(ended.code, 0) << ended.err;
  expect_near(straight, parted, 1e-12);
}

// On slow storage, so that the save of step 1 is still being written when step 2 has failed.
TEST_F(Mpirun, ASaveUnderWayIsGoodWhereTheNextLossIsNotFinite) {
  Training run;
  Ended ended = train(run, 2,
                      {"optimizer.params.lr=1e30", "min_lr=1e30", "warmup=0", "gradient_clipping=0",
                       "checkpoint_factor=1"},
                      Training::fault(run.step_dir(1), ENOSPC, "NEOX_FAULT_DELAY=30"));
  EXPECT_EQ(ended.code, 78) << ended.err;
  EXPECT_NE(ended.err.find("step 2: the loss is nan"), std::string::npos) << ended.err;
  EXPECT_EQ(run.saved(), std::vector<int64_t>{1}) << ended.err;
}

TEST_F(Mpirun, ASaveUnderWayIsGoodWhereTheNextSamplesCannotBeRead) {
  Training run;
  std::string data = own_data(run);
  damage(data, 1 / 3.);
  Ended ended = train(
      run, 2,
      {"data_path=" + data, "train_iters=100", "checkpoint_factor=1", "keep_last_n_checkpoints=1"},
      Training::fault(run.save() + "/global_step", EIO, "NEOX_FAULT_DELAY=2"));
  EXPECT_EQ(ended.code, 74) << ended.err;
  EXPECT_NE(ended.err.find("outside the vocabulary"), std::string::npos) << ended.err;
  ASSERT_EQ(run.saved().size(), 1u) << ended.err;
  EXPECT_EQ(run.losses().rbegin()->first, run.saved()[0]);
}

TEST_F(MpirunOfTwo, WhoseConfigurationsDifferAreNamed) {
  Training run;
  Ended ended = end(Strings{"/usr/bin/env", "mpirun", "--oversubscribe", "-np", "1"} +
                    run.command({"train_iters=20"}) + Strings{":", "-np", "1"} +
                    run.command({"train_iters=30"}));
  EXPECT_EQ(ended.code, 64) << ended.err;
  EXPECT_NE(ended.err.find("train_iters"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("rank 1"), std::string::npos) << ended.err;
}

TEST_F(MpirunOfTwo, WithoutSharedStorageNoticesItAtTheStart) {
  Training run;
  const Strings settings = {"save=checkpoints", "load=checkpoints", "model_parallel_size=2"};
  Strings command = {"/usr/bin/env", "mpirun", "--oversubscribe"};
  for (const char* node : {"a", "b"}) {
    fs::create_directories(run.dir() / node);
    if (*node == 'b') command.push_back(":");
    command = command + Strings{"-np", "1", "-wdir", run.dir() / node} + run.command(settings);
  }
  Ended ended = end(command);
  EXPECT_EQ(ended.code, 64) << ended.err;
  EXPECT_NE(ended.err.find("do not see what rank 0 has written"), std::string::npos) << ended.err;
}

TEST_F(Mpirun, AConfigurationErrorOfAllRanksKeepsItsExitCode) {
  Training run;
  Ended ended = train(run, 2, {"data_path=/nowhere/text"});
  EXPECT_EQ(ended.code, 74) << ended.err;
  EXPECT_NE(ended.err.find("/nowhere/text"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace neox::testing
