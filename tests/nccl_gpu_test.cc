// The real library, on a machine with a GPU: a world of one.
#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/nccl.h"
#include "comm/nccl_communicator.h"
#include "comm_cases.h"

namespace neox {
namespace {

using Kind = Communicator::Transfer::Kind;

TEST(NcclBuild, WithoutCudaTheErrorSaysWhatToBuild) {
  if (nccl_version() > 0) GTEST_SKIP() << "this build has CUDA";
  AloneControl control;
  try {
    nccl_world({}, control, at::kCPU, std::chrono::seconds(1));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("env/build.sh cuda"), std::string::npos);
    EXPECT_EQ(e.exit(), Exit::kUsage);
  }
}

TEST(NcclBuild, TheLibraryIsNewEnough) {
  if (nccl_version() == 0) GTEST_SKIP() << "this build has no CUDA";
  EXPECT_GE(nccl_version(), kNcclOldest);
}

class NcclGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (nccl_version() == 0 || !at::hasCUDA()) GTEST_SKIP() << "no GPU here";
    world = nccl_world({}, control, gpu, std::chrono::seconds(60));
  }
  at::Device gpu{at::kCUDA, 0};
  AloneControl control;
  std::unique_ptr<Communicator> world;
};

TEST_F(NcclGpu, AWorldOfOneIsAWorld) {
  for (const testing::CommCase& c : testing::comm_cases()) {
    SCOPED_TRACE(c.name);
    c.body(*world, gpu);
  }
}

TEST_F(NcclGpu, SendsToItselfSplitsAndAborts) {
  Tensor t = at::full({1000}, 3, at::device(gpu).dtype(at::kBFloat16)), in = at::zeros_like(t);
  std::vector<Communicator::Transfer> self = {{Kind::kSend, 0, t}, {Kind::kReceive, 0, in}};
  world->exchange(self);
  EXPECT_EQ(world->split(5, "one")->size(), 1);
  EXPECT_EQ(in[999].item<float>(), 3);
  world->abort("enough");
  EXPECT_THROW(world->all_reduce(t), Error);
}

}  // namespace
}  // namespace neox
