// Where the time of a step went: the table, and what a run writes.
#include "train/profiler.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "run_fixture.h"
#include "train/report.h"

namespace neox::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(SelfTimes, AreWithoutTheSpansInside) {
  auto times = self_times({{"inner", 1, 20, 50},
                           {"outer", 1, 0, 100},
                           {"inner", 1, 60, 80},
                           {"innermost", 1, 30, 40},
                           {"other thread", 2, 10, 20}});
  ASSERT_EQ(times.size(), 4u);
  EXPECT_EQ(times[0].name, "outer");
  EXPECT_DOUBLE_EQ(times[0].seconds, 50e-9);
  EXPECT_EQ(times[1].name, "inner");
  EXPECT_EQ(times[1].calls, 2);
  EXPECT_DOUBLE_EQ(times[1].seconds, 40e-9);
  double total = 0;
  for (const SelfTime& time : times) total += time.seconds;
  EXPECT_DOUBLE_EQ(total, 110e-9);
}

TEST(SelfTimes, OfSpansThatFollowEachOtherAreWhole) {
  auto times = self_times({{"b", 1, 10, 30}, {"a", 1, 0, 10}});
  EXPECT_DOUBLE_EQ(times[0].seconds, 20e-9);
  EXPECT_DOUBLE_EQ(times[1].seconds, 10e-9);
}

TEST(TimeTable, HasSharesOfAllAndTheFirstRows) {
  std::string table = time_table("kernel", {{"mm", 3, 0.75}, {"add", 2, 0.2}, {"x", 1, 0.05}}, 2);
  EXPECT_THAT(table, HasSubstr("0.750 s   75.0 %         3  mm\n"));
  EXPECT_THAT(table, HasSubstr("1.000 s  in all"));
  EXPECT_EQ(table.find("  x"), std::string::npos);
}

TEST(Profile, OfARunIsATraceOfItsStepsAndATable) {
  Training run;
  std::string log = run.dir() / "log";
  Ended ended =
      run.train({"profile=true", "profile_step_start=2", "profile_step_stop=4", "train_iters=6"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("profile of steps 3 to 4 of rank 0"));
  EXPECT_THAT(ended.err, HasSubstr("in all"));
  EXPECT_THAT(ended.err, ContainsRegex("  gradient of [A-Z][A-Za-z]+\n"));
  // What LibTorch says of a profile that was asked for on a CPU.
  EXPECT_EQ(ended.err.find("CPUAllocator"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("gpuGetDeviceCount"), std::string::npos) << ended.err;
  auto trace = nlohmann::json::parse(read_file(log + "/trace_steps_3-4_rank00000.json"));
  std::map<std::string, int> names;
  for (const auto& event : trace.at("traceEvents")) ++names[event.value("name", "")];
  EXPECT_EQ(names["step"], 2);
  EXPECT_EQ(names["forward"], 2);  // of one micro-batch each
  EXPECT_EQ(names["backward"], 2);
  EXPECT_GT(names["aten::mm"], 0);
  for (std::string operation : {"dropout", "norms", "rotated_heads", "activation", "adamw"})
    EXPECT_GT(names["neox::" + operation], 0) << operation;
  EXPECT_EQ(names["neox::head_loss"], 2);
}

TEST(Profile, ThatCannotBeWrittenEndsNoRun) {
  Training run;
  fs::create_directories(fs::path(run.dir() / "log/trace_steps_3-4_rank00000.json/other"));
  Ended ended =
      run.train({"profile=true", "profile_step_start=2", "profile_step_stop=4", "train_iters=6"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("rank00000.json could not be written"));
  EXPECT_THAT(ended.err, HasSubstr("in all"));
  EXPECT_EQ(run.saved(), (std::vector<int64_t>{6}));
}

TEST(Profile, IsNoTimeOfTraining) {
  Training run;
  Ended ended = run.train(
      {"profile=true", "profile_step_start=2", "profile_step_stop=4", "train_iters=6"}, {},
      {.environment = Training::fault(run.dir() / "log/trace_", 0, "NEOX_FAULT_DELAY=3000")});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_LT(run.metric("runtime/iteration_time").at(5), 3);
}

TEST(Profile, OfStepsThatAreBehindTheRunIsMissedAtTheStart) {
  Training run;
  ASSERT_EQ(run.train({"exit_interval=10"}).code, 0);
  Strings profile = {"profile=true", "profile_step_start=2", "profile_step_stop=4"};
  Ended ended = run.train(profile);
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the run goes on from step 10, behind profile_step_start, 2: "
                                   "there is no trace; set profile_step_start to 10 or more"));
  // Nothing is left to be profiled.
  EXPECT_EQ(run.train(profile).err.find("no trace"), std::string::npos);
}

TEST(Profile, OfRanksThatTheRunDoesNotHaveIsMissedAtTheStart) {
  auto warned = [](std::vector<int64_t> ranks, int rank) {
    Config config;
    config.train.iters = 20;
    config.train.profile = {.start = 2, .stop = 4, .ranks = std::move(ranks)};
    ::testing::internal::CaptureStderr();
    StepProfiler(config, {.rank = rank, .ranks = 3});
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warned({1, 3, 7}, 0),
              HasSubstr("profile_ranks names 3, 7, but the run has 3 ranks, from 0 on"));
  EXPECT_THAT(warned({}, 0), HasSubstr("profile_ranks names no rank, but the run has 3 ranks"));
  EXPECT_EQ(warned({0, 2}, 0), "");
  EXPECT_EQ(warned({7}, 1), "");  // rank 0 says it for all
}

TEST(Memory, OfARunIsToldByPart) {
  Training run;
  Ended ended = run.train({"memory_profiling=true", "train_iters=5"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err,
              ContainsRegex("memory of rank 0: parameters [0-9.]+ .B, gradients [0-9.]+ .B, "
                            "optimizer [0-9.]+ .B, activations and the rest"));
  EXPECT_EQ(run.train({"train_iters=6"}).err.find("memory of rank"), std::string::npos);
}

TEST(Memory, OfGradientsIsHalfIn16Bits) {
  auto said = [](const std::string& type) {
    return Training()
        .train({"memory_profiling=true", "train_iters=4", "fp16={enabled: true}",
                "data_types={grad_accum_dtype: " + type + "}"})
        .err;
  };
  EXPECT_THAT(said("fp32"), HasSubstr("parameters 89.3 kB, gradients 179 kB"));
  EXPECT_THAT(said("fp16"), HasSubstr("parameters 89.3 kB, gradients 89.3 kB"));
}

TEST(Memory, OfParametersGradientsAndMomentsIsFourNumbersEachInFp32) {
  auto world = self_communicator();
  Mesh mesh({}, *world);
  ModelConfig shape{
      .layers = 1, .hidden = 8, .heads = 2, .seq = 4, .vocab = 10, .intermediate = 32};
  Config config;
  config.train.iters = 1;
  GptNeoX model(shape, mesh, {}), half(shape, mesh, {.dtypes = {at::kBFloat16}});
  TrainStep::Memory whole = TrainStep(model, config).memory();
  int64_t n = num_parameters(shape);
  EXPECT_EQ(whole.parameters, 4 * n);
  EXPECT_EQ(whole.gradients, 4 * n);
  EXPECT_EQ(whole.optimizer, 8 * n);
  TrainStep::Memory mixed = TrainStep(half, config).memory();
  EXPECT_EQ(mixed.parameters, 2 * n);
  EXPECT_EQ(mixed.optimizer, 12 * n);  // with the masters
}

// What benchmarks/harness/ours.py reads.
TEST(Memory, OfTheGpuStandsBehindThatOfTheHost) {
  EXPECT_EQ(peak_memory_text(1'500'000'000, 30'400'000'000),
            "peak memory 1.50 GB, on the GPU 30.4 GB");
  EXPECT_EQ(peak_memory_text(1'500'000'000, 0), "peak memory 1.50 GB");
}

TEST(Profile, OfThreadsOfOneProcessIsOfOneRank) {
  Training run;
  Ended ended =
      run.train({"profile=true", "profile_ranks=[0, 1]", "train_batch_size=4"}, {"--spawn", "2"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_THAT(ended.err, HasSubstr("threads of one process"));
}

}  // namespace
}  // namespace neox::testing
