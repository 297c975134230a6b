// Which ranks train, when a run must stop by itself, and what the ranks left over do.
#include "train/ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "comm/thread.h"
#include "data_files.h"
#include "launch/spawn.h"
#include "train/run.h"
#include "train/signals.h"
#include "train/time_limit.h"

namespace neox {
namespace {

std::string layout(const LayoutConfig& config, int ranks) {
  return to_string(fitting_layout(config, ranks));
}

TEST(FittingLayout, TakesTheMostReplicasThatFit) {
  EXPECT_EQ(layout({.pipe = 2, .tensor = 2}, 8), "pp 2 x replicate 2 x shard 1 x tp 2");
  EXPECT_EQ(layout({.pipe = 2, .tensor = 2}, 11), "pp 2 x replicate 2 x shard 1 x tp 2");
  EXPECT_EQ(layout({.tensor = 2, .zero_stage = 1}, 7), "pp 1 x replicate 1 x shard 3 x tp 2");
  EXPECT_EQ(layout({.zero_stage = 1, .shard = 2}, 7), "pp 1 x replicate 3 x shard 2 x tp 1");
  EXPECT_EQ(layout({}, 3), "pp 1 x replicate 3 x shard 1 x tp 1");
}

TEST(FittingLayout, SaysHowManyRanksOneReplicaNeeds) {
  try {
    fitting_layout({.pipe = 2, .tensor = 4}, 7);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::kUsage);
    EXPECT_NE(std::string(e.what()).find("needs 8 ranks, the job has 7"), std::string::npos)
        << e.what();
  }
}

TEST(SpreadGroups, NamesTheFirstTpGroupOnSeveralNodes) {
  std::vector<std::string> by_three{"a", "a", "a", "b", "b", "b"};
  EXPECT_EQ(spread_groups({.replicate = 2, .tp = 3}, by_three), "");
  EXPECT_EQ(spread_groups({.replicate = 6}, by_three), "");
  EXPECT_EQ(spread_groups({.tp = 2}, by_three), "");  // the others idle
  std::string said = spread_groups({.pp = 3, .tp = 2}, by_three);
  EXPECT_TRUE(said.starts_with("model_parallel_size 2: ranks 2 on a, 3 on b share each layer"))
      << said;
  EXPECT_TRUE(said.ends_with("a --ntasks-per-node that 2 divides keeps them on one node")) << said;
  said = spread_groups({.replicate = 2, .tp = 2}, {"a", "b", "a", "b"});
  EXPECT_TRUE(said.ends_with("; --distribution=block keeps them on one node")) << said;
}

TEST(Idle, RanksAnswerUntilTheyAreReleased) {
  std::mutex mutex;
  std::vector<std::string> seen;
  run_thread_ranks(5, [&](Communicator&, Control& job) {
    if (job.rank() >= 3) return idle(job);
    TrainingControl control(job, 3);
    for (int i = 0; i < 2; ++i) {
      auto all = control.gather(concat(job.rank()), std::chrono::seconds(5));
      std::lock_guard lock(mutex);
      for (const auto& text : all) seen.push_back(text);
    }
    auto for_first = control.gather_to_first(concat(job.rank()), std::chrono::seconds(5));
    if (job.rank() == 0) { EXPECT_EQ(for_first, (std::vector<std::string>{"0", "1", "2"})); }
    control.release();
  });
  EXPECT_EQ(seen.size(), 18u);  // three ranks saw three texts twice
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "2"), 6);
}

TEST(ReadAlike, NamesTheRanksThatReadOtherFiles) {
  auto said = [](const std::vector<std::string>& read) -> std::string {
    try {
      run_thread_ranks(4, [&](Communicator&, Control& control) {
        check_read_alike(control, "the training data", read[static_cast<size_t>(control.rank())]);
      });
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), Exit::kUsage);
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(said({"a b", "a b", "a b", "a b"}), "");
  std::string text = said({"a b", "a c", "a b", ""});
  EXPECT_NE(text.find("the training data that ranks 1, 3 on "), std::string::npos) << text;
  EXPECT_NE(text.find(" have read is not that of rank 0 on "), std::string::npos) << text;
}

TEST(TimeLimit, LeavesTimeForASaveAndTwoSteps) {
  auto start = TimeLimit::Clock::now();
  TimeLimit limit(1000.0, 0, 60, start);
  auto at = [&](int seconds) { return limit.due(start + std::chrono::seconds(seconds)); };
  EXPECT_EQ(at(899), "");
  EXPECT_NE(at(901).find("the allocation ends in"), std::string::npos);
  limit.measured_save(20);
  limit.measured_step(5);
  EXPECT_EQ(at(948), "");
  EXPECT_NE(at(951), "");
  limit.save_under_way(true);  // two saves before the end
  EXPECT_EQ(at(918), "");
  EXPECT_NE(at(921), "");
}

TEST(TimeLimit, StopsAfterTheDurationAndNeverWithoutOne) {
  auto start = TimeLimit::Clock::now();
  TimeLimit limited(std::nullopt, 120, 60, start), unlimited(std::nullopt, 0, 60, start);
  EXPECT_EQ(limited.due(start + std::chrono::seconds(119)), "");
  EXPECT_NE(limited.due(start + std::chrono::seconds(121)).find("exit_duration_in_mins"),
            std::string::npos);
  EXPECT_EQ(unlimited.due(start + std::chrono::hours(1000)), "");
}

TEST(TimeLimit, ReadsTheEndOfTheAllocation) {
  std::string end = std::to_string(std::time(nullptr) + 500);
  EXPECT_NEAR(*allocation_left({{"SLURM_JOB_END_TIME", end}}), 500, 2);
  EXPECT_NEAR(*allocation_left({{"SLURM_JOB_END_TIME", "1"}, {"NEOX_JOB_END_TIME", end}}), 500, 2);
  EXPECT_FALSE(allocation_left({}).has_value());
  EXPECT_THROW(allocation_left({{"NEOX_JOB_END_TIME", "tomorrow"}}), Error);
}

const std::string kTiny =
    "num_layers: 1\nhidden_size: 8\nseq_length: 8\nnum_attention_heads: 1\ntrain_iters: 1\n"
    "train_batch_size: 1\nmax_position_embeddings: 8\n";

Config config_of(const std::string& text) { return load_config({.texts = {{"tiny", text}}}); }

// What comes before the first step, such as an index of the samples, takes the job's time too.
TEST(TimeLimit, IsCountedFromTheStartOfTheProcess) {
  StopFlag stop;
  RunPlace place{at::kCPU, stop, "life", 200.0};
  Config config = config_of(kTiny);
  EXPECT_EQ(time_limit_of(place, config).due(), "");
  place.started -= std::chrono::seconds(190);
  EXPECT_NE(time_limit_of(place, config).due(), "");
}

TEST(TimeLimit, AnEndThatIsPastIsSaidAtTheStartAndSavingTakesNoTimeBelowZero) {
  StopFlag stop;
  Config config = config_of(kTiny + "save: there\ncheckpoint_factor: 1\n");
  RunPlace late{at::kCPU, stop, "life", -600.0}, early{at::kCPU, stop, "life", 600.0};
  std::string due = time_limit_of(late, config).due();
  EXPECT_TRUE(due.starts_with("the allocation ends in 0.0 s, of which saving may take 0.0 s"))
      << due;
  std::string said = little_time(late, config);
  EXPECT_TRUE(said.starts_with("the allocation ends in 0.0 s, and saving may take 5.0 s")) << said;
  EXPECT_EQ(little_time(early, config), "");
}

TEST(TimeLimit, BeginsWithWhatTheLastSaveTook) {
  StopFlag stop;
  RunPlace place{at::kCPU, stop, "life", 3600.0};
  Config config = config_of(kTiny + "save: there\ncheckpoint_factor: 1\n");
  auto due = [&](double last_save, int left) {
    return time_limit_of(place, config, last_save)
        .due(place.started + std::chrono::seconds(3600 - left));
  };
  EXPECT_EQ(due(0, 200), "");
  EXPECT_EQ(due(1000, 1530), "");  // 1.5 x (5 + 1000) + 10
  EXPECT_NE(due(1000, 1510), "");
  EXPECT_EQ(little_time(place, config, 3500), "");
  EXPECT_NE(little_time(place, config, 3600), "");
}

// 20 billion parameters: 240 GB.
TEST(TimeLimit, TakesTheNodesToWriteAtOnceUntilASaveIsMeasured) {
  StopFlag stop;
  RunPlace place{at::kCPU, stop, "life", 100000.0};
  Config config = config_of(
      "num_layers: 44\nhidden_size: 6144\nnum_attention_heads: 64\nseq_length: 8\n"
      "max_position_embeddings: 8\ntrain_iters: 1\ntrain_batch_size: 1\n");
  auto end = place.started + std::chrono::seconds(100000);
  EXPECT_NE(time_limit_of(place, config).due(end - std::chrono::seconds(600)), "");
  place.num_nodes = 16;
  EXPECT_EQ(time_limit_of(place, config).due(end - std::chrono::seconds(600)), "");
}

// What each rank counts, by a clock that on b is ten minutes ahead; what all then take for the end,
// and what is said.
TEST(SharedEnd, IsByTheClockOfRank0) {
  const std::vector<std::string> hosts = {"a", "b", "b", "c"};
  const std::vector<std::optional<double>> left = {700, 100, 101, 690};
  std::mutex mutex;
  std::vector<SharedEnd> ends;
  auto start = TimeLimit::Clock::now();
  run_thread_ranks(4, [&](Communicator&, Control& control) {
    SharedEnd end = share_end(control, hosts, start, left[static_cast<size_t>(control.rank())]);
    std::lock_guard lock(mutex);
    ends.push_back(end);
  });
  for (const SharedEnd& end : ends) {
    EXPECT_NEAR(end.left.value(), 700, 5);
    EXPECT_TRUE(end.warning.starts_with("the clock of b is 10 min 0 s ahead of that of a, which "))
        << end.warning;
  }
}

TEST(SharedEnd, IsNoneWhereRank0KnowsNone) {
  run_thread_ranks(2, [&](Communicator&, Control& control) {
    std::optional<double> left;
    if (control.rank() == 1) left = 100;
    SharedEnd end = share_end(control, std::vector<std::string>{"a", "b"}, {}, left);
    EXPECT_FALSE(end.left.has_value());
    EXPECT_EQ(end.warning, "");
  });
}

TEST(Spawn, NumbersTheRanksOfAllProcesses) {
  ProcessInfo parent{.rank = 1, .size = 2, .host = "node2", .rendezvous_host = "node1"};
  parent.rendezvous_port = 15001;
  parent.life = "7.0.0";
  Environment env = spawned_environment(parent, 4, 3);
  EXPECT_EQ(env["NEOX_RANK"], "7");
  EXPECT_EQ(env["NEOX_WORLD_SIZE"], "8");
  EXPECT_EQ(env["NEOX_LOCAL_RANK"], "3");
  EXPECT_EQ(env["NEOX_MASTER"], "node1:15001");
  EXPECT_EQ(env["NEOX_LIFE"], "7.0.0");
}

void tell(const std::string& text) {
  Environment env = environment();
  std::ofstream(fs::path(variable(env, "NEOX_TEST_READY")) / variable(env, "NEOX_RANK")) << text;
}

// A rank of a terminal in which Ctrl-C was pressed: it saves for a while, and ends.
[[noreturn]] void stop_at_ctrl_c() {
  const StopFlag& stop = install_stop_signals();
  ::raise(SIGINT);
  tell("here");
  for (int i = 0; i < 500 && stop.load() == SIGINT; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::_Exit(static_cast<int>(stop.load() == SIGUSR1 ? Exit::kRequeue : Exit::kInternal));
}

// What the processes of the tests below do: this program again, with that filter.
TEST(SpawnedRank, DISABLED_EndsAsAsked) {
  std::string rank = variable(environment(), "NEOX_RANK");
  if (variable(environment(), "NEOX_LIFE") == "waits") ::pause();  // SIGTERM ends it
  if (variable(environment(), "NEOX_LIFE") == "counts") stop_at_ctrl_c();
  if (variable(environment(), "NEOX_LIFE") == "meets") tell(variable(environment(), "NEOX_MASTER"));
  std::_Exit(rank == "2" ? static_cast<int>(Exit::kIo) : 0);
}

Exit spawn(int ranks, const std::string& life, const std::atomic<int>& stop) {
  return spawn_ranks({"ranks_test", "--spawn", "3", "--gtest_also_run_disabled_tests",
                      "--gtest_filter=SpawnedRank.*"},
                     {.host = "here", .life = life}, ranks, stop);
}

TEST(Spawn, EndsAsTheRankThatFailed) {
  const std::atomic<int> stop = 0;
  EXPECT_EQ(spawn(2, "runs", stop), Exit::kDone);
  EXPECT_EQ(spawn(3, "runs", stop), Exit::kIo);
}

TEST(Spawn, NamesOnePlaceToAllRanks) {
  testing::Directory ready;
  ::setenv("NEOX_TEST_READY", ready.path().c_str(), 1);
  const std::atomic<int> stop = 0;
  EXPECT_EQ(spawn(2, "meets", stop), Exit::kDone);
  std::string place = read_file(ready.path() / "0");
  EXPECT_TRUE(place.starts_with("here:")) << place;
  EXPECT_EQ(read_file(ready.path() / "1"), place);
}

// Each of the two would name a place of its own, and the ranks wait for each other in vain.
TEST(Spawn, OfSeveralParentsWithoutAPlaceToMeetIsRefused) {
  const std::atomic<int> stop = 0;
  ProcessInfo parent{.size = 2, .host = "here", .launcher = "mpirun of Open MPI"};
  std::string error = testing::error_of([&] {
    spawn_ranks({"ranks_test", "--gtest_filter=None"}, parent, 2, stop);
  });
  EXPECT_TRUE(error.starts_with("64: --spawn 2 under mpirun of Open MPI")) << error;
}

TEST(Spawn, PassesASignalOn) {
  const std::atomic<int> stop = SIGTERM;
  EXPECT_EQ(spawn(2, "waits", stop), Exit::kPeerLost);
}

// Ctrl-C has reached the ranks by the terminal, and a second SIGINT would end them before they
// have saved.
TEST(Spawn, DoesNotRepeatTheSignalOfATerminal) {
  testing::Directory ready;
  ::setenv("NEOX_TEST_READY", ready.path().c_str(), 1);
  std::atomic<int> stop = 0;
  std::thread terminal([&] {
    for (int i = 0; i < 1000 && ready.list().size() < 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop = SIGINT;
  });
  EXPECT_EQ(spawn(2, "counts", stop), Exit::kRequeue);
  terminal.join();
}

}  // namespace
}  // namespace neox
