#include "base/text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "base/json_bounds.h"
#include "base/program.h"
#include "base/signals.h"

namespace neox {
namespace {

TEST(ExitOf, OnlyABrokenGpuAsksForOtherNodes) {
  const std::string broken = "CUDA error: uncorrectable ECC error encountered";
  EXPECT_EQ(exit_of(std::runtime_error(broken)), Exit::kPeerLost);
  EXPECT_EQ(exit_of(Error(Exit::kInternal, "NCCL: " + broken)), Exit::kPeerLost);
  EXPECT_EQ(exit_of(Error(Exit::kIo, broken)), Exit::kIo);
  for (const char* text :
       {"CUDA error: uncorrectable NVLink error detected during the execution",
        "CUDA error: Invalid access of peer GPU memory over nvlink or a "
        "hardware error",
        "CUDA error: unspecified launch failure", "cudaEventRecord: unknown error"})
    EXPECT_EQ(exit_of(std::runtime_error(text)), Exit::kPeerLost) << text;
  EXPECT_EQ(exit_of(std::runtime_error("CUDA error: an illegal memory access was encountered")),
            Exit::kInternal);
}

// As LibTorch's memory does that a GPU was to copy to, where the GPU has failed.
struct Breaks {
  void operator()(const int*) const { throw std::runtime_error("uncorrectable ECC error"); }
};

int break_twice() {
  const int memory = 0;
  std::unique_ptr<const int, Breaks> copied(&memory);
  throw std::runtime_error("CUDA error: uncorrectable ECC error encountered");
}

TEST(RunProgramDeathTest, EndsWithItsCodeWhereADestructorThrowsToo) {
  EXPECT_EXIT(run_program("neox-test", break_twice), testing::ExitedWithCode(76),
              "neox-test: uncorrectable ECC error");
  auto told = [](const std::exception& e) { fail(Exit::kIo, "lost, says ", e.what()); };
  auto run = [&] {
    LastWords words(told);
    run_program("neox-test", break_twice);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(74), "neox-test: lost, says uncorrectable ECC error");
}

// As Ctrl-C in `neox-prepare-data ... 2>&1 | tee log`, which reaches tee first.
[[noreturn]] void interrupt_where_nobody_reads_the_log() {
  int log[2];
  check(::pipe(log) == 0, "pipe");
  ::dup2(log[1], STDERR_FILENO);
  for (int end : log) ::close(end);
  on_stop_signals([](int) {
    [[maybe_unused]] auto written = ::write(STDERR_FILENO, "x", 1);
    ::_exit(75);
  });
  std::raise(SIGINT);
  std::abort();
}

TEST(StopSignalsDeathTest, AnInterruptThatNobodyReadsOfEndsInTheSameWay) {
  EXPECT_EXIT(interrupt_where_nobody_reads_the_log(), testing::ExitedWithCode(75), "");
}

// What the shell made of a text without quotes, or a path without its option.
TEST(Program, NamesAnArgumentTooMany) {
  for (int most : {0, 1}) {
    Program program({"neox-test", "", "DIR [options]", "", ""});
    program.options().add_options()("dir", text("DIR"), "")("prompt", texts("TEXT"), "");
    if (most > 0) program.positional("dir", most);
    std::vector<std::string> arguments = {"--prompt", "Once", "upon"};
    if (most > 0) arguments.insert(arguments.begin(), "runs/a");
    try {
      program.parse(arguments);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), Exit::kUsage);
      EXPECT_EQ(std::string(e.what()).find("'upon' is an argument too many. Usage: neox-test DIR"),
                0U)
          << e.what();
    }
  }
}

TEST(ExitOf, WhatTheFileSystemRefusesIsInputAndOutput) {
  std::filesystem::path name = std::string(300, 'x');  // longer than names may be
  try {
    static_cast<void>(std::filesystem::exists(name));
    FAIL();
  } catch (const std::exception& e) { EXPECT_EQ(exit_of(e), Exit::kIo) << e.what(); }
}

TEST(Text, HumanNumbersHaveThreeDigits) {
  EXPECT_EQ(human_bytes(1'250'000'000), "1.25 GB");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_count(70'426'624), "70.4 M");
  EXPECT_EQ(human_duration(200), "3 min 20 s");
  EXPECT_EQ(with_commas(-2097152), "-2,097,152");
  EXPECT_EQ(with_commas(999), "999");
}

TEST(Text, NearestFindsTheKeyThatWasMeant) {
  std::vector<std::string> keys = {"beta1", "beta2", "eps"};
  EXPECT_EQ(nearest("beta_2", keys), "beta2");
  EXPECT_EQ(nearest("completely_else", keys), "");
  EXPECT_EQ(nearest("name", std::vector<std::string>{"amp", "gas"}), "");
}

// Of both the distance would take hours.
TEST(Text, NearestIsNothingOfAnotherLength) {
  std::vector<std::string> keys = {std::string(1 << 20, 'x')};
  EXPECT_EQ(nearest(std::string(16 << 20, 'x'), keys), "");
}

TEST(Text, NearestIsNothingOfALongWord) {
  std::vector<std::string> keys = {std::string(20'000, 'x')};
  EXPECT_EQ(nearest(std::string(20'000, 'x'), keys), "");
}

TEST(Text, PrintedIsAsLongAsItNeedsToBe) {
  EXPECT_EQ(printed("%.2f %s", 1.5, "m"), "1.50 m");
  EXPECT_EQ(printed("%s", std::string(1000, 'x').c_str()), std::string(1000, 'x'));
  EXPECT_EQ(printed("%s", ""), "");
}

TEST(Text, ColumnsAreAsWideAsTheirWidestCell) {
  std::vector<std::vector<std::string>> rows = {{"node", "GB/s"}, {"n1", "12.5", "slow"}, {}};
  using Lines = std::vector<std::string>;
  EXPECT_EQ(in_columns(rows, Align::kLeft), (Lines{"node  GB/s", "n1    12.5  slow", ""}));
  EXPECT_EQ(in_columns(rows, Align::kRight), (Lines{"node  GB/s", "  n1  12.5  slow", ""}));
}

TEST(JsonBounds, AreOfLevelsAndOfTheKeysOfEachObject) {
  const JsonBounds most = {.levels = 2, .keys = 3};
  for (const char* json : {R"({"a": [1], "b": [2]})", R"([{"a": 1, "b": 2}, {"a": 1, "b": 2}])",
                           R"({"a": "[[[:::", "b": "\"[[[::::"})", "]]]", "::::", ""})
    EXPECT_EQ(beyond(most, json), "") << json;
  EXPECT_EQ(beyond(most, R"({"\\": [[]]})"), "is nested in more than 2 levels");
  EXPECT_EQ(beyond(most, R"({"a": 1, "b": {"a": 1, "b": 2}, "c": "", "d": 0})"),
            "has an object of more than 3 keys");
}

TEST(JsonBounds, AreOfTheKeysOfAllObjects) {
  const JsonBounds most = {.all_keys = 3};
  EXPECT_EQ(beyond(most, R"([{"a": 1, "b": {"a": 1}}, ":", {}])"), "");
  EXPECT_EQ(beyond(most, R"([{"a": 1, "b": {"a": 1}}, ":", {"a": 1}])"), "has more than 3 keys");
}

}  // namespace
}  // namespace neox
