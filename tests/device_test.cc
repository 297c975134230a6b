#include "model/device.h"

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/Version.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <iostream>
#include <set>

#include "base/error.h"
#include "model/driver.h"
#include "model/gpus.h"

namespace neox {
namespace {

ProcessInfo rank_of(int local_rank, int local_size) {
  return {.local_rank = local_rank, .local_size = local_size, .host = "node7"};
}

std::string error_of(int visible, const ProcessInfo& process, const Environment& env = {}) {
  try {
    choose_gpu(visible, process, env);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::kUsage);
    return e.what();
  }
  return "";
}

TEST(AttentionOrder, PutsCudnnFirstWhereItIsFasterAndRight) {
  auto first = [](int major, int64_t cudnn) {
    std::vector<int64_t> order = attention_order(major, cudnn);
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), 4u);
    return static_cast<at::SDPBackend>(order.front());
  };
  using enum at::SDPBackend;
  EXPECT_EQ(first(9, 91900), cudnn_attention);
  EXPECT_EQ(first(10, 91900), cudnn_attention);
  EXPECT_EQ(first(8, 91900), flash_attention);
  EXPECT_EQ(first(12, 91900), flash_attention);
  EXPECT_EQ(first(9, 91002), flash_attention);
}

TEST(AttentionKernel, OnAGpuIsAFusedOneForEachHeadSize) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  use_gpu(0);
  for (int64_t head : {32, 64, 80, 128, 256}) {
    std::string kernel = attention_kernel(0, at::kBFloat16, 2048, head);
    std::cout << head << ": " << kernel << "\n";
    EXPECT_NE(kernel, "plain products") << head;
  }
  EXPECT_GT(gpu_peak_memory(0), 0);
}

TEST(AttentionKernel, OnAGpuIsUnplannedForTexts) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  use_gpu(0);
  std::string planned = attention_kernel(0, at::kBFloat16, 2048, 64);
  {
    UnplannedAttention for_texts(at::Device(at::kCUDA, 0));
    EXPECT_EQ(attention_kernel(0, at::kBFloat16, 2048, 64), "Flash Attention 2");
  }
  EXPECT_EQ(attention_kernel(0, at::kBFloat16, 2048, 64), planned);
}

TEST(ChooseGpu, TakesTheLocalRankWhereAllAreVisible) {
  EXPECT_EQ(choose_gpu(8, rank_of(5, 8), {}).index, 5);
  EXPECT_EQ(choose_gpu(8, rank_of(1, 2), {}).index, 1);
  EXPECT_EQ(choose_gpu(1, rank_of(0, 1), {}).note, "");
}

TEST(ChooseGpu, TakesTheOnlyOneAndAdvises) {
  GpuChoice choice = choose_gpu(1, rank_of(3, 4), {{"CUDA_VISIBLE_DEVICES", "3"}});
  EXPECT_EQ(choice.index, 0);
  EXPECT_NE(choice.note.find("--gpus-per-node=4 instead of --gpus-per-task"), std::string::npos);
}

TEST(ChooseGpu, RefusesFewerGpusThanRanksWithBothCounts) {
  EXPECT_EQ(error_of(2, rank_of(3, 4), {{"CUDA_VISIBLE_DEVICES", "0,1"}}),
            "node7: 4 ranks run on this node, but 2 GPUs are visible (CUDA_VISIBLE_DEVICES=0,1): "
            "ask for --gpus-per-node=4 without --gpu-bind, or start 2 ranks on a node "
            "(--ntasks-per-node)");
}

TEST(UnusedGpus, AreNamedUnlessCpusAreMeant) {
  EXPECT_EQ(unused_gpus({}, false), "");
  EXPECT_EQ(unused_gpus({{"CUDA_VISIBLE_DEVICES", ""}, {"SLURM_JOB_GPUS", "0,1"}}, true), "");
  std::string allotted = unused_gpus({{"SLURM_JOB_GPUS", "0,1"}}, true);
  EXPECT_TRUE(allotted.starts_with("GPUs were allotted (SLURM_JOB_GPUS=0,1), but this build is"))
      << allotted;
  EXPECT_NE(allotted.find("env/build.sh cuda"), allotted.npos);
  EXPECT_TRUE(unused_gpus({}, true).starts_with("this machine has an NVIDIA driver"));
}

// In a build for CUDA a GPU that is not there is another message.
TEST(Device, SeveralRanksWithGpusAreRefusedByABuildForCpus) {
  Environment env{{"CUDA_VISIBLE_DEVICES", "0,1"}};
  ProcessInfo two = rank_of(0, 2);
  two.size = 2;
  if (at::hasCUDA()) GTEST_SKIP() << "there are GPUs";
  EXPECT_THROW(pick_device(env, two), Error);
  env["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_TRUE(pick_device(env, two).is_cpu());
}

TEST(SharedGpu, NamesTwoRanksOfOneGpu) {
  EXPECT_EQ(shared_gpu({"GPU-a 0000:1b:00.0 n1", "GPU-b 0000:1c:00.0 n1", "GPU-c 0000:1b:00.0 n2"}),
            "");
  EXPECT_EQ(shared_gpu({"GPU-a 0000:1b:00.0 n1", "GPU-b 0000:1c:00.0 n1", "GPU-b 0000:1c:00.0 n1"}),
            "ranks 1 and 2 have the same GPU of n1, 0000:1c:00.0 (GPU-b): start one task per GPU, "
            "with --ntasks-per-node and --gpus-per-node alike");
  EXPECT_EQ(shared_gpu({"", ""}), "");
}

TEST(Device, OfOneRankOnACpuDiffersFromNone) {
  AloneControl control;
  EXPECT_NO_THROW(check_devices_differ(at::kCPU, {}, control));
}

TEST(Driver, VersionOfEveryFormOfTheFile) {
  for (const auto& [text, version] : std::vector<std::pair<std::string, std::string>>{
           {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC "
            "2024\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
            "550.54.15"},
           {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.57.01  Release Build  "
            "(dvs-builder@U16-A24-9-2)  Thu Oct 10 12:15:00 UTC 2024\n",
            "565.57.01"},
           {"NVRM version: NVIDIA UNIX Open Kernel x86_64 Kernel Module  590.48.01  Mon Dec  8 "
            "11:22:45 UTC 2025\n",
            "590.48.01"},
           {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  384.98  Thu Oct 26 15:16:01 PDT 2017",
            "384.98"},
           {"GCC version:  gcc version 12.3.0\n", ""},
           {"", ""}})
    EXPECT_EQ(driver_version(text), version) << text;
}

TEST(Driver, ServesTheCudaOfItsBranch) {
  for (const auto& [driver, cuda] : std::vector<std::pair<std::string, int>>{{"550.54.15", 12040},
                                                                             {"535.183.06", 12020},
                                                                             {"580.65.06", 13000},
                                                                             {"565.57.01", 12060},
                                                                             {"610.43.02", 13010},
                                                                             {"470.42.01", 11040},
                                                                             {"390.1", 0},
                                                                             {"", 0}})
    EXPECT_EQ(cuda_of_driver(driver), cuda) << driver;
}

TEST(Driver, TooOldSaysWhatItServesAndWhatIsNeeded) {
  std::string problem =
      "node7: driver 550.54 serves CUDA 12.4; this build needs 13.0, driver 580 or newer: "
      "build with the wheel for CUDA 12 (docs/dependencies.md), or use cuda-compat";
  EXPECT_EQ(driver_problem({"550.54", 12040}, 13000, "node7"), problem);
  EXPECT_EQ(driver_problem({"550.54", 0}, 13000, "node7"), problem);
  EXPECT_EQ(driver_problem({"470.42.01", 11040}, 12080, "n"),
            "n: driver 470.42.01 serves CUDA 11.4; this build needs 12.8, driver 525 or newer: "
            "update the driver, or use cuda-compat");
}

TEST(Driver, OfTheSameMajorVersionOrWithCudaCompatServes) {
  EXPECT_EQ(driver_problem({"580.65.06", 13000}, 13010, "n"), "");
  EXPECT_EQ(driver_problem({"550.54.15", 12040}, 12080, "n"), "");
  EXPECT_EQ(driver_problem({"550.54.15", 13000}, 13000, "n"), "");
  EXPECT_EQ(driver_problem({}, 13000, "n"), "");
}

TEST(Driver, WithoutItsLibraryTheContainerIsAtFault) {
  EXPECT_NE(driver_problem({"580.65.06", 0}, 13000, "n").find("NVIDIA_DRIVER_CAPABILITIES"),
            std::string::npos);
}

TEST(Torch, TheLibraryTellsTheVersionItIs) {
  EXPECT_EQ(torch_problem(TORCH_VERSION, at::show_config()), "");
  EXPECT_NE(at::show_config().find("TORCH_VERSION="), std::string::npos);
  std::string problem = torch_problem("2.10.0", at::show_config());
  EXPECT_NE(problem.find("this program was built with 2.10.0"), std::string::npos) << problem;
}

}  // namespace
}  // namespace neox
