// The real library, on a machine with a GPU: a world of one.
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/nccl.h"
#include "comm/nccl_communicator.h"

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

TEST(NcclGpu, AWorldOfOneComputesAndEnds) {
  if (nccl_version() == 0 || !at::hasCUDA()) GTEST_SKIP() << "no GPU here";
  at::Device gpu(at::kCUDA, 0);
  AloneControl control;
  auto world = nccl_world({}, control, gpu, std::chrono::seconds(60));
  auto on_gpu = at::device(gpu).dtype(at::kBFloat16);
  Tensor t = at::full({1000}, 3, on_gpu), in = at::full({1000}, 0, on_gpu),
         full = at::arange(64, on_gpu);
  world->all_reduce(t);
  world->all_gather(t, in);
  EXPECT_TRUE(in.equal(at::full({1000}, 3, on_gpu)));
  Tensor mine = full.clone();
  world->reduce_scatter(full, mine);
  EXPECT_TRUE(mine.equal(full));
  std::vector<Communicator::Transfer> self = {{Kind::kSend, 0, t}, {Kind::kReceive, 0, in}};
  world->exchange(self);
  world->broadcast(t, 0);
  EXPECT_EQ(world->split(5, "one")->size(), 1);
  EXPECT_EQ(in[999].item<float>(), 3);
  world->abort("enough");
  EXPECT_THROW(world->all_reduce(t), Error);
}

}  // namespace
}  // namespace neox
