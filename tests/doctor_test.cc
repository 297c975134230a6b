#include "doctor/doctor.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "child.h"
#include "comm/thread.h"
#include "doctor/machine.h"
#include "doctor/speed.h"
#include "doctor/storage.h"
#include "launch/efa.h"

namespace neox {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kDoctor = NEOX_BUILD_DIR "/bin/neox-doctor";

RankReport report(int rank, const std::string& host, double matmul = 600) {
  return {.rank = rank,
          .host = host,
          .findings = {{Verdict::kFine, "EFA", "32 adapters"}},
          .facts = {{"driver", "580.95"}},
          .rates = {{"matmul", "TFLOP/s", matmul, Blame::kNode}}};
}

// Four nodes of two ranks.
std::vector<RankReport> four_nodes() {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 8; ++rank)
    reports.push_back(report(rank, concat("node", rank / 2 + 1), 600 + rank));
  return reports;
}

auto finding(Verdict verdict, const std::string& check, const std::string& text) {
  return AllOf(Field(&Finding::verdict, verdict), Field(&Finding::check, check),
               Field(&Finding::text, HasSubstr(text)));
}

TEST(Diagnosis, OfEqualNodesIsFine) {
  Diagnosis diagnosis = diagnose(four_nodes());
  EXPECT_TRUE(diagnosis.fine());
  EXPECT_THAT(diagnosis.exclude, IsEmpty());
  EXPECT_EQ(diagnosis.nodes.size(), 4u);
  EXPECT_EQ(diagnosis.findings.size(), 1u) << "equal findings stand once";
  EXPECT_THAT(show(diagnosis), Not(HasSubstr("exclude")));
}

TEST(Diagnosis, NamesTheSlowNodeByItsSlowestRank) {
  auto reports = four_nodes();
  reports[5].rates[0].value = 450;
  Diagnosis diagnosis = diagnose(reports);
  EXPECT_FALSE(diagnosis.fine());
  EXPECT_THAT(show(diagnosis), AllOf(HasSubstr("--exclude=node3\n"), HasSubstr("450 *"),
                                     HasSubstr("node3: slow: 450 TFLOP/s")));
}

TEST(Diagnosis, BelowFourFifthsOfTheMedianIsSlow) {
  auto slow = [](double rate) {
    auto reports = four_nodes();
    for (auto& r : reports) r.rates[0].value = r.host == "node2" ? rate : 100;
    return !diagnose(reports).exclude.empty();
  };
  EXPECT_TRUE(slow(79.9));
  EXPECT_FALSE(slow(80));
  EXPECT_FALSE(slow(1000));
}

TEST(Diagnosis, ASlowFileSystemIsNoNodesFault) {
  auto reports = four_nodes();
  for (auto& r : reports)
    r.rates.push_back({"write /fsx", "MB/s", r.host == "node2" ? 10.0 : 1000.0, Blame::kNobody});
  Diagnosis diagnosis = diagnose(reports);
  EXPECT_TRUE(diagnosis.fine());
  EXPECT_THAT(diagnosis.exclude, IsEmpty());
  EXPECT_THAT(show(diagnosis), AllOf(HasSubstr("10 *"), HasSubstr("note  write /fsx")));
}

TEST(Diagnosis, NamesTheNodeThatIsUnlikeTheOthers) {
  auto reports = four_nodes();
  reports[6].facts["driver"] = reports[7].facts["driver"] = "550.54";
  Diagnosis diagnosis = diagnose(reports);
  EXPECT_THAT(diagnosis.exclude, ElementsAre("node4"));
  EXPECT_THAT(show(diagnosis), HasSubstr("node4: '550.54', where most nodes have '580.95'"));
}

TEST(Diagnosis, NodesThatDifferHalfAndHalfAreSaidAndNotLeftOut) {
  std::vector<RankReport> two = {report(0, "node1"), report(1, "node2")};
  two[0].facts["GPUs"] = "7 x H100", two[1].facts["GPUs"] = "8 x H100";
  Diagnosis diagnosis = diagnose(two);
  EXPECT_FALSE(diagnosis.fine());
  EXPECT_THAT(diagnosis.exclude, IsEmpty());
  EXPECT_THAT(show(diagnosis),
              HasSubstr("the nodes differ: '7 x H100' on node1, '8 x H100' on node2"));
}

TEST(Diagnosis, WhatIsWrongEverywhereExcludesNobody) {
  auto reports = four_nodes();
  for (auto& r : reports) r.findings.push_back({Verdict::kWrong, "memlock", "64 kB"});
  Diagnosis everywhere = diagnose(reports);
  EXPECT_FALSE(everywhere.fine());
  EXPECT_THAT(everywhere.exclude, IsEmpty());
  reports.resize(2);
  reports.push_back(report(2, "node2"));
  EXPECT_THAT(diagnose(reports).exclude, ElementsAre("node1"));
}

TEST(Diagnosis, NamesTheWrongClock) {
  auto reports = four_nodes();
  reports[2].clock_offset = reports[3].clock_offset = -3.5;
  Diagnosis diagnosis = diagnose(reports);
  EXPECT_THAT(show(diagnosis), HasSubstr("node2: 3.5 s behind the node of rank 0"));
  for (auto& r : reports) r.clock_error = 4;
  EXPECT_TRUE(diagnose(reports).fine()) << "within the error of the measurement";
}

TEST(Diagnosis, AsJsonHasWhatAScriptNeeds) {
  auto reports = four_nodes();
  reports[5].rates[0].value = 450;
  auto json = nlohmann::json::parse(show_json(diagnose(reports)));
  EXPECT_FALSE(json["fine"]);
  EXPECT_EQ(json["exclude"][0], "node3");
  EXPECT_EQ(json["nodes"][2]["rates"]["matmul"]["slow"], true);
  EXPECT_EQ(json["nodes"][0]["facts"]["driver"], "580.95");
  EXPECT_EQ(json["findings"][0]["verdict"], "fine");
}

TEST(RankReport, SurvivesThePacking) {
  RankReport before = report(3, "node\xff-2");
  before.clock_offset = 1.5;
  RankReport after = unpack(pack(before));
  EXPECT_EQ(after.rank, 3);
  EXPECT_EQ(after.findings[0].text, "32 adapters");
  EXPECT_EQ(after.facts, before.facts);
  EXPECT_EQ(after.rates[0].value, 600);
  EXPECT_EQ(after.clock_offset, 1.5);
}

TEST(Driver, MissingWhereGpusWereAllottedIsWrong) {
  RankReport with, without;
  check_driver({{"SLURM_STEP_GPUS", "0,1"}}, {}, 13000, with);
  check_driver({}, {}, 13000, without);
  EXPECT_THAT(with.findings, ElementsAre(finding(Verdict::kWrong, "driver", "SLURM_STEP_GPUS")));
  EXPECT_THAT(without.findings, ElementsAre(finding(Verdict::kFine, "driver", "CPUs")));
}

TEST(Driver, ThatIsTooOldIsWrong) {
  RankReport old, recent, no_cuda;
  check_driver({}, {"550.54.15", 12040}, 13000, old);
  check_driver({}, {"580.95.05", 13000}, 13000, recent);
  check_driver({}, {"580.95.05", 13000}, 0, no_cuda);
  EXPECT_THAT(old.findings, ElementsAre(finding(Verdict::kWrong, "driver", "550.54.15")));
  EXPECT_THAT(recent.findings, ElementsAre(finding(Verdict::kFine, "driver", "580.95.05")));
  EXPECT_THAT(no_cuda.findings, ElementsAre(finding(Verdict::kNote, "driver", "no CUDA")));
}

TEST(Driver, ThatIsTooOldEverywhereExcludesNobody) {
  std::vector<RankReport> reports = {report(0, "node1"), report(1, "node2")};
  for (RankReport& r : reports) check_driver({}, {"550.54.15", 12040}, 13000, r);
  Diagnosis diagnosis = diagnose(reports);
  EXPECT_FALSE(diagnosis.fine());
  EXPECT_THAT(diagnosis.exclude, IsEmpty());
  EXPECT_THAT(show(diagnosis), HasSubstr("WRONG  driver  driver 550.54.15 serves CUDA 12.4"));
}

TEST(Gpus, DamageIsNamed) {
  RankReport report{.host = "node1"};
  std::vector<Gpu> gpus(8, {.name = "NVIDIA H200", .memory_bytes = 150'000'000'000});
  gpus[3].ecc_errors = 2;
  gpus[5].slowed_by_hardware = true;
  check_gpus(gpus, report);
  EXPECT_THAT(report.findings,
              ElementsAre(finding(Verdict::kFine, "GPU", "8 x NVIDIA H200, 150 GB"),
                          finding(Verdict::kWrong, "GPU", "GPU 3 of node1 had 2 memory errors"),
                          finding(Verdict::kNote, "GPU", "GPU 5 of node1 is slowed down")));
}

struct FakeSys {
  fs::path dir = fs::temp_directory_path() / concat("neox_doctor_test.", ::getpid());
  ~FakeSys() { fs::remove_all(dir); }
  void put(const std::string& name, const std::string& text) const {
    make_directories((dir / name).parent_path());
    write_file_atomically(dir / name, text);
  }
};

TEST(InfiniBand, PortsAreToldByStateAndRate) {
  FakeSys sys;
  EXPECT_EQ(fabric_ports(sys.dir), "none");
  for (const char* device : {"mlx5_0", "mlx5_1", "mlx5_2"}) {
    std::string name = concat("class/infiniband/", device);
    bool dead = name.back() == '2';
    sys.put(name + "/device/vendor", "0x15b3\n");
    sys.put(name + "/ports/1/state", dead ? "1: DOWN\n" : "4: ACTIVE\n");
    sys.put(name + "/ports/1/rate", dead ? "10 Gb/sec (4X SDR)\n" : "400 Gb/sec (4X NDR)\n");
  }
  EXPECT_EQ(fabric_ports(sys.dir), "2 x ACTIVE 400 Gb/sec (4X NDR), 1 x DOWN 10 Gb/sec (4X SDR)");
}

TEST(Efa, MissingAdaptersAndLowMemlockAreWrong) {
  FakeSys sys;
  sys.put("devices/virtual/dmi/id/sys_vendor", "Amazon EC2\n");
  sys.put("devices/virtual/dmi/id/product_name", "p4d.24xlarge\n");
  for (int i = 0; i < 3; ++i)
    sys.put(concat("class/infiniband/rdmap", i, "/device/vendor"), "0x1d0f\n");
  RankReport report, whole;
  check_efa(sys.dir, 65536, report);
  sys.put("class/infiniband/rdmap3/device/vendor", "0x1d0f\n");
  check_efa(sys.dir, RLIM_INFINITY, whole);
  EXPECT_THAT(report.findings,
              ElementsAre(finding(Verdict::kWrong, "EFA", "3 adapters, but p4d.24xlarge has 4"),
                          finding(Verdict::kWrong, "memlock", "65.5 kB")));
  EXPECT_THAT(whole.findings, ElementsAre(finding(Verdict::kFine, "EFA", "4 adapters"),
                                          finding(Verdict::kFine, "memlock", "unlimited")));
}

TEST(Limits, LowOnesAreNoted) {
  RankReport report;
  check_open_files(1024, report);
  check_shared_memory(64 << 20, 64 << 20, 8, report);
  EXPECT_THAT(report.findings, ElementsAre(finding(Verdict::kNote, "open files", "1,024"),
                                           finding(Verdict::kNote, "/dev/shm", "--ipc=host")));
}

const std::string kMounts =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 22 0:25 / /fsx rw,noatime - lustre 10.0.0.1@tcp:/abc rw,flock\n"
    "31 22 0:26 / /my\\040data rw - nfs4 server:/x rw\n"
    "32 30 0:27 / /fsx/local rw shared:9 master:2 - tmpfs tmpfs rw\n";

TEST(Mounts, TheLongestPointHoldsThePath) {
  EXPECT_EQ(find_mount(kMounts, "/fsx/models").kind, "lustre");
  EXPECT_EQ(find_mount(kMounts, "/fsx").source, "10.0.0.1@tcp:/abc");
  EXPECT_EQ(find_mount(kMounts, "/fsx2/models").kind, "ext4");
  EXPECT_EQ(find_mount(kMounts, "/fsx/local/x").kind, "tmpfs");
  EXPECT_EQ(find_mount(kMounts, "/my data/x").kind, "nfs4");
  EXPECT_EQ(find_mount("", "/x").kind, "");
}

TEST(Storage, IsMeasuredAndLeavesNothing) {
  fs::path dir = fs::temp_directory_path() / concat("neox_storage_test.", ::getpid());
  make_directories(dir);
  RankReport report;
  check_storage(dir, 9'000'000, "", report);
  EXPECT_TRUE(fs::is_empty(dir));
  fs::remove_all(dir);
  ASSERT_EQ(report.rates.size(), 2u);
  EXPECT_GT(report.rates[0].value, 0);
  EXPECT_THAT(report.findings[0].text, AllOf(HasSubstr(" on /"), Not(HasSubstr(" of  on"))));
}

TEST(Storage, ThatIsFullIsWrongInTheSameWordsOnAllNodes) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small{1 << 20, before.rlim_max};
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::vector<RankReport> reports = {report(0, "node1"), report(1, "node2")};
  for (RankReport& r : reports) check_storage("/tmp", 9'000'000, "", r);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(reports[0].findings.back(), finding(Verdict::kWrong, "path /tmp", "write to /tmp: "));
  EXPECT_THAT(diagnose(reports).exclude, IsEmpty());
}

TEST(Storage, ThatIsNotThereIsWrong) {
  RankReport report;
  check_storage("/nonexistent/fsx", 1, "", report);
  EXPECT_THAT(report.findings,
              ElementsAre(finding(Verdict::kWrong, "path /nonexistent/fsx", "is it mounted")));
}

TEST(Clock, OffsetIsThatOfMostBarriers) {
  std::vector<double> first = {10, 11, 12, 13, 14}, mine = {12.5, 13.5, 19.0, 15.5, 16.5};
  ClockOffset clock = clock_offset(mine, first);
  EXPECT_NEAR(clock.offset, 2.5, 1e-12);
  EXPECT_GT(clock.error, 4);
}

TEST(AllReduce, OfTwoRanksIsMeasuredAndChecked) {
  std::vector<RankReport> reports(2);
  run_thread_ranks(2, [&](Communicator& world, Control&) {
    measure_all_reduce(world, at::kCPU, "all-reduce", Blame::kNode,
                       reports[static_cast<size_t>(world.rank())]);
  });
  for (const RankReport& r : reports) {
    ASSERT_EQ(r.rates.size(), 1u);
    EXPECT_GT(r.rates[0].value, 0);
    EXPECT_THAT(r.findings, IsEmpty());
  }
}

TEST(NeoxDoctor, ChecksThisMachine) {
  auto ended = testing::Child({kDoctor, "--path", "/tmp", "--size", "8"}).end();
  EXPECT_TRUE(ended.code == 0 || ended.code == 70) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("matmul TFLOP/s"), HasSubstr("write MB/s"),
                               HasSubstr("memlock"), HasSubstr(host_name())));
}

TEST(NeoxDoctor, EndsWith70WhereSomethingIsWrong) {
  auto ended = testing::Child({kDoctor, "--path", "/nonexistent", "--json"}).end();
  EXPECT_EQ(ended.code, 70);
  EXPECT_FALSE(nlohmann::json::parse(ended.out)["fine"]);
}

TEST(NeoxDoctor, SaysWhoItIs) {
  auto ended = testing::Child(
                   {kDoctor, "--ranks"},
                   {.environment = {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
                                    "MASTER_ADDR=here", "MASTER_PORT=1234"}})
                   .end();
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("rank=1 size=2 local_rank=1 local_size=2 node=0"),
                               HasSubstr("meet='here:1234'")));
}

TEST(NeoxDoctor, RefusesNonsense) {
  for (const char* size : {"0", "-5", "x", "99999999"}) {
    auto ended = testing::Child({kDoctor, "--size", size}).end();
    EXPECT_EQ(ended.code, 64) << size;
  }
}

}  // namespace
}  // namespace neox
