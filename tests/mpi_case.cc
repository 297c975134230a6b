// Ranks that are processes: `mpi_case NAME` runs a case of comm_cases.h, or one of the failures
// below, in a world of the MPI plugin; tests/mpi_test.sh starts it with mpirun and reads what it
// says. `all` runs every case. A failed rank prints "rank R: MESSAGE" and ends with the error's
// code, later than the others need to find out by themselves.
//   mpi_case NAME [MESSAGE_BYTES CHUNK_BYTES DIRECT_BYTES]
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "base/error.h"
#include "comm/mpi_plugin.h"
#include "comm/world.h"
#include "comm_cases.h"
#include "launch/environment.h"

namespace neox {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using World = std::unique_ptr<Communicator>;
using Clock = std::chrono::steady_clock;

// Another rank's end must not end those that are to be watched.
constexpr seconds kOthersFindOut{3};

MpiOptions g_options{.deadline = seconds(20)};

World open_world(seconds deadline = seconds(1)) {
  MpiOptions options = g_options;
  options.deadline = deadline;
  return mpi_plugin("").world(options);
}

struct Listener : ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) std::fprintf(stderr, "%s: %s\n", result.file_name(), result.message());
  }
};

void all_cases() {
  World world = open_world(g_options.deadline);
  for (auto cases : {testing::comm_cases(), testing::host_comm_cases()})
    for (const testing::CommCase& c : cases) {
      if (world->rank() == 0) std::printf("%s on %d ranks\n", c.name, world->size());
      c.body(*world, at::kCPU);
    }
}

void missing_rank() {
  World world = open_world();
  Tensor t = at::zeros({7});
  world->all_reduce(t);
  if (world->rank() == 1)
    std::this_thread::sleep_for(kOthersFindOut);
  else
    world->all_reduce(t);
}

void other_operation() {
  World world = open_world();
  auto pair = world->split(world->rank() / 2, "pair");
  Tensor t = at::zeros({3});
  if (world->rank() == 1)
    pair->broadcast(t, 0);
  else
    world->all_reduce(t);
}

void send_without_receive() {
  World world = open_world();
  std::vector<Communicator::Transfer> send = {{Communicator::Transfer::kSend, 1, at::zeros({1})}};
  if (world->rank() == 0)
    world->exchange(send);
  else
    std::this_thread::sleep_for(kOthersFindOut);
}

void other_size() {
  World world = open_world();
  Tensor t = at::zeros({world->rank() + 3});
  world->all_reduce(t);
}

void abort_wakes() {
  World world = open_world(seconds(60));
  Tensor t = at::zeros({3});
  if (world->rank() == 0) std::this_thread::sleep_for(kOthersFindOut);
  auto start = Clock::now();
  std::jthread other([&] {
    std::this_thread::sleep_for(milliseconds(300));
    world->abort("rank 0 on node1 was lost");
  });
  try {
    if (world->rank() != 0) world->all_reduce(t);
  } catch (const Error& e) {
    EXPECT_LT(Clock::now() - start, milliseconds(900));
    EXPECT_THROW(world->broadcast(t, 0), Error);  // and for ever
    throw;
  }
}

// Whom the others wait for is known by the time that their operations take.
void late_rank() {
  World world = open_world(seconds(20));
  auto pair = world->split(0, "pair");
  Tensor t = at::zeros({3});
  world->all_reduce(t);
  double before = world->seconds_spent();
  for (Communicator* group : {world.get(), pair.get()}) {
    if (world->rank() == 1) std::this_thread::sleep_for(milliseconds(300));
    group->all_reduce(t);
  }
  double spent = world->seconds_spent() - before;
  EXPECT_EQ(world->seconds_spent(), pair->seconds_spent());
  if (world->rank() == 1)
    EXPECT_LT(spent, 0.3);
  else
    EXPECT_GT(spent, 0.5);
}

// All ranks are stopped for longer than the deadline while one is at work.
void stopped() {
  World world = open_world(seconds(3));
  std::string me = concat(::getpid());
  std::string stop = "(sleep 0.3; kill -STOP " + me + "; sleep 4; kill -CONT " + me + ") &";
  check(std::system(stop.c_str()) == 0, "no shell");
  for (int i = 0; world->rank() == 1 && i < 20; ++i) std::this_thread::sleep_for(milliseconds(100));
  Tensor t = at::zeros({7});
  world->all_reduce(t);
}

// The other ranks must not be waited for where this one leaves by an exception.
void exception_leaves() {
  World world = open_world(seconds(60));
  Tensor t = at::zeros({3});
  if (world->rank() == 1) fail(Exit::kIo, "disk on fire");
  world->all_reduce(t);
}

void share_before_beside_and_after() {
  const MpiPlugin& plugin = mpi_plugin("");
  int rank = std::stoi(environment().at("PMIX_RANK"));
  auto expect = [&](const std::string& text) {
    EXPECT_EQ(plugin.share(rank == 0 ? text : "mine", seconds(20)), text);
  };
  expect("node1:29500");
  expect(std::string("with\0a zero", 11));
  {
    World world = open_world(seconds(20));
    expect("beside");
    Tensor t = at::zeros({3});
    world->all_reduce(t);
  }
  expect("after");
}

void share_alone() { mpi_plugin("").share("x", seconds(2)); }

void share_without_one() {
  if (environment().at("PMIX_RANK") == "1")
    std::this_thread::sleep_for(seconds(60));  // mpirun ends it once the other has failed
  else
    mpi_plugin("").share("x", seconds(1));
}

struct FakeControl : AloneControl {  // agrees with itself
  using Control::gather;
};

// A launcher that says 4 ranks.
void world_of_four() {
  ProcessInfo process{.rank = 0, .size = 4, .host = "node7", .launcher = "Slurm step 12.0"};
  Environment env = environment();
  auto found = env.find("OMPI_COMM_WORLD_RANK");
  if (found != env.end()) process.rank = std::stoi(found->second);
  FakeControl control;
  world_communicator(process, control, at::kCPU);
}

void world_as_launched() {
  Environment env = environment();
  ProcessInfo process{.rank = std::stoi(env.at("OMPI_COMM_WORLD_RANK")),
                      .size = std::stoi(env.at("OMPI_COMM_WORLD_SIZE"))};
  FakeControl control;
  World world = world_communicator(process, control, at::kCPU);
  EXPECT_EQ(world->rank(), process.rank);
  EXPECT_EQ(world->size(), process.size);
}

const std::map<std::string, std::function<void()>> kBodies = {
    {"all", all_cases},
    {"missing_rank", missing_rank},
    {"other_operation", other_operation},
    {"send_without_receive", send_without_receive},
    {"other_size", other_size},
    {"abort_wakes", abort_wakes},
    {"late_rank", late_rank},
    {"stopped", stopped},
    {"exception_leaves", exception_leaves},
    {"share", share_before_beside_and_after},
    {"share_alone", share_alone},
    {"share_without_one", share_without_one},
    {"world_of_four", world_of_four},
    {"world_as_launched", world_as_launched},
};

int run(const std::string& name) {
  try {
    kBodies.at(name)();
  } catch (const Error& e) {
    Environment env = environment();
    auto rank = env.find("PMIX_RANK");
    std::fprintf(stderr, "rank %s: %s\n", rank == env.end() ? "?" : rank->second.c_str(), e.what());
    if (name != "exception_leaves") std::this_thread::sleep_for(milliseconds(1500));
    return static_cast<int>(e.exit());
  }
  return ::testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}

}  // namespace
}  // namespace neox

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new neox::Listener);
  if (argc > 4) {
    neox::g_options.message_bytes = std::stoll(argv[2]);
    neox::g_options.chunk_bytes = std::stoll(argv[3]);
    neox::g_options.direct_bytes = std::stoll(argv[4]);
  }
  return neox::run(argc > 1 ? argv[1] : "all");
}
