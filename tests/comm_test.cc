#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <fstream>
#include <functional>
#include <iostream>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/program.h"
#include "child.h"
#include "comm/mesh.h"
#include "comm/mpi_plugin.h"
#include "comm/nccl_communicator.h"
#include "comm/thread.h"
#include "comm/world.h"
#include "comm_cases.h"
#include "nccl_stand_in.h"

namespace neox {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = Communicator::Transfer::Kind;

// The message of what run_thread_ranks throws.
std::string error_of(int ranks, const RankBody& body) {
  try {
    run_thread_ranks(ranks, body, seconds(1));
  } catch (const Error& e) { return e.what(); }
  return "";
}

// What every back end must do, with ranks as threads.
void run_cases(std::span<const testing::CommCase> cases) {
  for (const testing::CommCase& c : cases)
    for (int ranks : {1, 2, 3, 5}) {
      SCOPED_TRACE(concat(c.name, " on ", ranks, " ranks"));
      run_thread_ranks(
          ranks, [&](Communicator& world, Control&) { c.body(world, at::kCPU); }, seconds(60));
    }
}

TEST(Comm, DoesWhatEveryBackEndMust) { run_cases(testing::comm_cases()); }

TEST(Comm, SumsGoInTheOrderOfTheRanks) { run_cases(testing::host_comm_cases()); }

TEST(Comm, ASendWaitsForItsReceive) {
  EXPECT_NE(error_of(2,
                     [](Communicator& world, Control&) {
                       Tensor t = at::zeros({1});
                       std::vector<Communicator::Transfer> send = {{Kind::kSend, 1, t}};
                       if (world.rank() == 0) world.exchange(send);
                     })
                .find("no peer for rank 0's send to 1"),
            std::string::npos);
}

TEST(Comm, AMissingRankIsNamed) {
  std::string error = error_of(3, [](Communicator& world, Control&) {
    Tensor t = at::zeros({7});
    if (world.rank() != 1) world.all_reduce(t);
  });
  EXPECT_NE(error.find("all_reduce sum of 7 x Float in group world: rank 1 did not arrive"),
            std::string::npos)
      << error;
}

TEST(Comm, ChannelsOfControlDoNotMix) {
  run_thread_ranks(4, [&](Communicator&, Control& control) {
    std::unique_ptr<Control> channel;
    if (control.rank() < 3) channel = control.channel("part", 3);
    auto rounds = [](Control& on, char name) {
      for (int round = 0; round < 50; ++round) {
        auto texts = on.gather(concat(name, round), seconds(60));
        EXPECT_EQ(texts, std::vector<std::string>(size_t(on.size()), concat(name, round)));
      }
    };
    std::jthread other([&] {
      if (channel) rounds(*channel, 'b');
    });
    rounds(control, 'a');
  });
}

TEST(Comm, DifferentCallsAreAnErrorOnEveryRank) {
  std::string error = error_of(2, [](Communicator& world, Control&) {
    Tensor t = at::zeros({world.rank() + 1});
    world.all_reduce(t);
  });
  EXPECT_NE(error.find("the ranks call different operations"), std::string::npos) << error;
}

TEST(Comm, AnErrorOnOneRankWakesTheOthersAndIsTheOneReported) {
  EXPECT_EQ(error_of(3,
                     [](Communicator& world, Control& control) {
                       check_io(world.rank() != 2, "disk on fire");
                       if (world.rank() == 0) control.barrier();
                       Tensor t = at::zeros({1});
                       world.all_reduce(t);
                     }),
            "rank 2: disk on fire");
}

TEST(Comm, RanksForWhichThereIsNoThreadEndTheOthers) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer itself needs memory for each thread";
#endif
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &usual), 0);
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  auto room = static_cast<rlim_t>(pages * ::getpagesize() + (int64_t{512} << 20));
  rlimit little{room, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
  std::string error;
  try {
    run_thread_ranks(4000, [](Communicator&, Control& control) { control.barrier(); });
  } catch (const Error& e) { error = e.what(); }
  ::setrlimit(RLIMIT_AS, &usual);
  EXPECT_NE(error.find("starts no more threads"), std::string::npos) << error;
}

// What takes half a second and waits for what may take 3 s.
constexpr seconds kPatience{3};

void work() {
  for (int i = 0; i < 5; ++i) std::this_thread::sleep_for(milliseconds(100));
}

int wait_for_a_thread() {
  auto body = [](Communicator& world, Control&) {
    Tensor t = at::zeros({1});
    std::vector<Communicator::Transfer> transfer = {
        {world.rank() == 0 ? Kind::kReceive : Kind::kSend, 1 - world.rank(), t}};
    if (world.rank() == 1) std::cerr << "waits" << std::endl, work();
    if (world.rank() < 2) world.exchange(transfer);
    world.all_reduce(t);
  };
  return run_thread_ranks(3, body, kPatience), 0;
}

enum class Awaited { kCommunicator, kDevice };

int wait_for_nccl(Awaited awaited) {
  auto self = self_communicator();
  AloneControl control;
  auto nccl = std::make_shared<testing::NcclStandIn>(*self);
  NcclTimes times{.deadline = kPatience, .poll = milliseconds(2)};
  if (awaited == Awaited::kCommunicator)
    nccl->polls_in_progress = 40, std::cerr << "waits" << std::endl;
  auto world = nccl_communicator(nccl, control, at::kCPU, times);
  nccl->polls_in_progress = 0;
  nccl->device_works = false;
  Tensor t = at::zeros({1});
  world->all_reduce(t);
  if (awaited == Awaited::kDevice) std::cerr << "waits" << std::endl, work();
  nccl->device_works = true;
  world->all_reduce(t);
  return 0;
}

TEST(Comm, AStopOfAllRanksIsNoDelay) {
  const std::vector<std::function<int()>> bodies = {
      wait_for_a_thread, [] { return wait_for_nccl(Awaited::kCommunicator); },
      [] { return wait_for_nccl(Awaited::kDevice); }};
  std::deque<testing::Child> children;
  for (const auto& body : bodies)
    children.emplace_back([body] { return run_program("stopped", body); });
  for (testing::Child& child : children) EXPECT_TRUE(child.wait_for("waits"));
  std::this_thread::sleep_for(milliseconds(100));
  for (testing::Child& child : children) child.signal(SIGSTOP);
  std::this_thread::sleep_for(kPatience + milliseconds(500));
  for (testing::Child& child : children) child.signal(SIGCONT);
  for (testing::Child& child : children) {
    testing::Ended ended = child.end();
    EXPECT_EQ(ended.code, 0) << ended.err;
  }
}

TEST(Comm, MeshAxesHoldTheRanksThatDifferInOneCoordinate) {
  Layout layout{.pp = 2, .replicate = 2, .shard = 3, .tp = 2};
  run_thread_ranks(layout.size(), [&](Communicator& world, Control&) {
    Mesh mesh(layout, world);
    int r = world.rank();
    EXPECT_EQ(mesh.tp().rank(), r % 2);
    EXPECT_EQ(mesh.shard().rank(), r / 2 % 3);
    EXPECT_EQ(mesh.replicate().rank(), r / 6 % 2);
    EXPECT_EQ(mesh.data().rank(), r / 2 % 6);
    EXPECT_EQ(mesh.pp().rank(), r / 12);
    Tensor sum = at::full({1}, double(r), at::kDouble);
    mesh.data().all_reduce(sum);
    EXPECT_EQ(sum.item<double>(), r / 12 * 12 * 6 + r % 2 * 6 + 30);
    EXPECT_EQ(mesh.pp_ends().size(), 2);
  });
}

TEST(Comm, AMeshThatDoesNotFillTheWorldIsRefused) {
  EXPECT_NE(error_of(3, [](Communicator& world, Control&) { Mesh mesh({.tp = 2}, world); })
                .find("needs 2 ranks, the job has 3"),
            std::string::npos);
}

TEST(MpiPlugin, AMissingOneIsNamedWithTheCure) {
  try {
    mpi_plugin("/nowhere/libneox_mpi.so");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::kUsage);
    EXPECT_NE(std::string(e.what()).find("/nowhere/libneox_mpi.so; install libopenmpi-dev"),
              std::string::npos)
        << e.what();
  }
}

TEST(MpiPlugin, AFileThatIsNoneIsRefused) {
  EXPECT_THROW(mpi_plugin(NEOX_SOURCE_DIR "/README.md"), Error);
  EXPECT_THROW(mpi_plugin(NEOX_BUILD_DIR "/tests/libfault_preload.so"), Error);
}

TEST(MpiPlugin, OneOfOtherSourcesIsRefused) {
  std::string said;
  try {
    mpi_plugin(NEOX_BUILD_DIR "/tests/libforeign_plugin.so");
  } catch (const Error& e) { said = e.what(); }
  EXPECT_NE(said.find("was built for other sources, this program is"), std::string::npos) << said;
}

TEST(World, OfOneProcessIsTheGroupOfOne) {
  AloneControl control;
  EXPECT_EQ(world_communicator({}, control, at::kCPU)->size(), 1);
}

TEST(Control, GathersTextByRank) {
  run_thread_ranks(3, [](Communicator&, Control& control) {
    auto all = control.gather(std::to_string(control.rank()), seconds(5));
    EXPECT_EQ(all, (std::vector<std::string>{"0", "1", "2"}));
  });
}

}  // namespace
}  // namespace neox
