// What neox-doctor finds out on the ranks of a job together.
#include <gmock/gmock.h>

#include "base/error.h"
#include "base/text.h"
#include "comm/thread.h"
#include "doctor/doctor.h"

namespace neox {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Examination, OfTwoNodesReachesRankZeroAlone) {
  std::vector<RankReport> reports;
  run_thread_ranks(4, [&](Communicator& world, Control& control) {
    ProcessInfo process{.rank = world.rank(),
                        .size = 4,
                        .local_rank = world.rank() % 2,
                        .local_size = 2,
                        .node = -1,
                        .num_nodes = 0,
                        .host = world.rank() < 2 ? "node1" : "node2"};
    auto same = [&](const at::Device&) { return world.split(0, "world"); };
    auto cpu = [] { return at::Device(at::kCPU); };
    auto all = examine({process, {}, control, cpu, same}, {});
    EXPECT_EQ(all.size(), world.rank() == 0 ? 4u : 0u);
    if (world.rank() == 0) reports = all;
  });
  Diagnosis diagnosis = diagnose(reports);
  ASSERT_EQ(diagnosis.nodes.size(), 2u);
  for (const NodeRow& node : diagnosis.nodes) {
    EXPECT_EQ(node.ranks, 2);
    EXPECT_THAT(node.rates,
                ElementsAre(Field(&Rate::name, "fp32 matmul"), Field(&Rate::name, "all-reduce"),
                            Field(&Rate::name, "all-reduce of all")));
    EXPECT_EQ(node.clock_offset, 0) << "one clock";
  }
}

TEST(Examination, GoesOnWhereARankHasNoDevice) {
  std::vector<RankReport> reports;
  run_thread_ranks(2, [&](Communicator& world, Control& control) {
    ProcessInfo process{.rank = world.rank(),
                        .size = 2,
                        .local_rank = world.rank(),
                        .local_size = 2,
                        .host = "node1"};
    auto device = [&]() -> at::Device {
      check(world.rank() == 0, "the GPU fell off the bus");
      return at::kCPU;
    };
    auto none = [&](const at::Device&) -> std::unique_ptr<Communicator> {
      fail(Exit::kUsage, "no MPI here");
    };
    auto all = examine({process, {}, control, device, none}, {});
    if (world.rank() == 0) reports = all;
  });
  EXPECT_THAT(show(diagnose(reports)),
              AllOf(HasSubstr("fell off the bus"), HasSubstr("not measured: no MPI here")));
}

TEST(Examination, NamesTheNodeWhoseDeviceFailsWhileItMultiplies) {
  std::vector<RankReport> reports;
  run_thread_ranks(2, [&](Communicator& world, Control& control) {
    ProcessInfo process{.rank = world.rank(),
                        .size = 2,
                        .node = -1,
                        .num_nodes = 0,
                        .host = concat("node", world.rank() + 1)};
    auto no_gpu = [&] { return world.rank() == 1 ? at::Device(at::kCUDA, 99) : at::kCPU; };
    auto none = [](const at::Device&) -> std::unique_ptr<Communicator> {
      fail(Exit::kInternal, "the ranks would wait for the one that failed");
    };
    auto all = examine({process, {}, control, no_gpu, none}, {});
    if (world.rank() == 0) reports = all;
  });
  EXPECT_THAT(show(diagnose(reports)),
              AllOf(HasSubstr("node2: rank 1 on node2 cannot multiply"), Not(HasSubstr("frame #")),
                    HasSubstr("not measured: the device of a rank does not compute"),
                    HasSubstr("--exclude=node2\n")));
}

TEST(Examination, OfNodesThatAllHaveTooFewGpusExcludesNobody) {
  std::vector<RankReport> reports;
  run_thread_ranks(2, [&](Communicator& world, Control& control) {
    std::string host = concat("node", world.rank() + 1);
    ProcessInfo process{.rank = world.rank(), .size = 2, .node = -1, .num_nodes = 0, .host = host};
    auto device = [&]() -> at::Device {
      fail(Exit::kUsage, host, ": 8 ranks run on this node, but 4 GPUs are visible");
    };
    auto none = [](const at::Device&) -> std::unique_ptr<Communicator> {
      fail(Exit::kUsage, "no MPI here");
    };
    auto all = examine({process, {}, control, device, none}, {});
    if (world.rank() == 0) reports = all;
  });
  for (RankReport& report : reports) report.rates.clear();  // other work may slow the one
  EXPECT_THAT(show(diagnose(reports)),
              AllOf(HasSubstr("8 ranks run on this node"), Not(HasSubstr("--exclude"))));
}

class RecordingControl : public AloneControl {
 public:
  std::vector<std::string> gather(const std::string& mine, std::chrono::seconds deadline) override {
    longest = std::max(longest, deadline);
    return AloneControl::gather(mine, deadline);
  }
  std::chrono::seconds longest{0};
};

TEST(Examination, WaitsForASlowFileSystemOfManyNodes) {
  RecordingControl control;
  auto cpu = [] { return at::Device(at::kCPU); };
  examine({ProcessInfo{.host = "node1"}, {}, control, cpu, nullptr}, {});
  EXPECT_GE(control.longest, std::chrono::hours(10));
}

}  // namespace
}  // namespace neox
