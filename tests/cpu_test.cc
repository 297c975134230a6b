#include "launch/cpu.h"

#include <unistd.h>

#include <limits>

#include "data_files.h"
#include "environments.h"
#include "launch/efa.h"

namespace neox {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

ProcessInfo ranks_of_node(int local_size) {
  return {.rank = 1, .size = 8, .local_size = local_size, .host = "node1"};
}

TEST(CpusOfGroups, AreTheLeastOnTheWayToTheRootRoundedUp) {
  testing::Directory dir;
  dir.put("v2", "0::/pod/container\n");
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(cpus_of_groups(dir / "v2", dir.path()), kNone);
  dir.put("pod/cpu.max", "max 100000\n"), dir.put("pod/container/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus_of_groups(dir / "v2", dir.path()), kNone);
  dir.put("pod/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpus_of_groups(dir / "v2", dir.path()), 3);
  dir.put("pod/container/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpus_of_groups(dir / "v2", dir.path()), 1);
  dir.put("v1", "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n");
  dir.put("cpu/docker/x/cpu.cfs_quota_us", "-1"),
      dir.put("cpu/docker/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cpus_of_groups(dir / "v1", dir.path()), kNone);
  dir.put("cpu/docker/x/cpu.cfs_quota_us", "400000");
  EXPECT_EQ(cpus_of_groups(dir / "v1", dir.path()), 4);
}

TEST(CpusOfCpusets, AreThoseOfTheProcessOrOfItsContainer) {
  testing::Directory dir;
  dir.put("v2", "0::/pod/container\n"), dir.put("v1", "3:cpuset:/docker/x\n");
  EXPECT_EQ(cpus_of_cpusets(dir / "v2", dir.path()), std::numeric_limits<int64_t>::max());
  dir.put("cpuset.cpus.effective", "0-63\n"), dir.put("pod/cpuset.cpus.effective", "\n");
  EXPECT_EQ(cpus_of_cpusets(dir / "v2", dir.path()), 64);
  dir.put("pod/container/cpuset.cpus.effective", "0-7,32-39\n");
  EXPECT_EQ(cpus_of_cpusets(dir / "v2", dir.path()), 16);
  dir.put("cpuset/cpuset.effective_cpus", "3\n");
  EXPECT_EQ(cpus_of_cpusets(dir / "v1", dir.path()), 1);
}

TEST(CpuShare, FollowsTheAffinityMask) {
  Environment slurm = of("SLURM_CPUS_ON_NODE=96");
  EXPECT_EQ(cpu_share(slurm, {12, 96}, ranks_of_node(8)).threads, 12);
  EXPECT_EQ(cpu_share({}, {12, 96}, ranks_of_node(8)).threads, 12);
  EXPECT_EQ(cpu_share({}, {96, 96}, {}).threads, 96);
  EXPECT_EQ(cpu_share(slurm, {12, 96}, ranks_of_node(8)).warning, "");
  CpuCounts quota{.allowed = 6, .online = 96, .by_quota = true};  // the ranks share it
  EXPECT_EQ(cpu_share({}, quota, {}).threads, 6);
  EXPECT_EQ(cpu_share({}, quota, {}).reason, "a quota of 6 CPUs");
  EXPECT_EQ(cpu_share({}, quota, ranks_of_node(4)).threads, 1);
}

TEST(CpuShare, DividesWhatRanksWouldShare) {
  Environment slurm = of("SLURM_CPUS_ON_NODE=96");
  EXPECT_EQ(cpu_share(slurm, {96, 96}, ranks_of_node(8)).threads, 12);
  EXPECT_EQ(cpu_share(with(slurm, "SLURM_CPUS_PER_TASK=4"), {96, 96}, ranks_of_node(8)).threads, 4);
  // Ranks that one task has started.
  EXPECT_EQ(cpu_share(with(slurm, "SLURM_CPUS_PER_TASK=96"), {96, 96}, ranks_of_node(8)).threads,
            12);
  EXPECT_EQ(cpu_share({}, {96, 96}, ranks_of_node(8)).threads, 12);
  EXPECT_EQ(cpu_share({}, {48, 96}, ranks_of_node(8)).threads, 12);  // bound to a socket
  EXPECT_EQ(cpu_share(of("SLURM_CPUS_ON_NODE=4"), {96, 96}, ranks_of_node(1)).threads, 4);
  EXPECT_EQ(cpu_share(of("SLURM_CPUS_ON_NODE=8"), {2, 2}, ranks_of_node(2)).threads, 1);
}

TEST(CpuShare, DividesACpusetThatRanksShareAndKeepsTheirBinding) {
  auto threads = [](const Environment& env, int allowed, int local_size) {
    CpuCounts counts{.allowed = allowed, .online = 64, .in_cpuset = 16};
    return cpu_share(env, counts, ranks_of_node(local_size)).threads;
  };
  EXPECT_EQ(threads({}, 16, 1), 16);
  EXPECT_EQ(threads({}, 16, 4), 4);
  EXPECT_EQ(threads({}, 4, 4), 4);
  EXPECT_EQ(threads({}, 1, 4), 1);
  EXPECT_EQ(threads(of("SLURM_CPUS_ON_NODE=64"), 16, 4), 16);  // which rules in a job
}

TEST(CpuShare, OmpNumThreadsRules) {
  Environment env = of("OMP_NUM_THREADS=3,2 SLURM_CPUS_ON_NODE=96");
  EXPECT_EQ(cpu_share(env, {96, 96}, ranks_of_node(8)).threads, 3);
  EXPECT_THAT(error_of([] {
                cpu_share(of("OMP_NUM_THREADS=all"), {1, 1}, {});
              }),
              HasSubstr("OMP_NUM_THREADS=all"));
}

TEST(CpuShare, WarnsOfTooFew) {
  Environment slurm = of("SLURM_CPUS_ON_NODE=96"), gpu = of("CUDA_VISIBLE_DEVICES=0");
  EXPECT_THAT(cpu_share(slurm, {1, 96}, ranks_of_node(8)).warning,
              AllOf(HasSubstr("rank 1 on node1"), HasSubstr("--cpus-per-task=12")));
  EXPECT_THAT(cpu_share(gpu, {1, 1}, {}).warning, HasSubstr("beside its GPU"));
  EXPECT_THAT(cpu_share({}, {2, 2}, ranks_of_node(4)).warning, HasSubstr("share 2 CPUs"));
  EXPECT_THAT(
      cpu_share(with(slurm, "OMP_NUM_THREADS=1 " + kHook), {96, 96}, ranks_of_node(8)).warning,
      HasSubstr("PyTorch hook"));
  EXPECT_EQ(cpu_share({}, {2, 2}, ranks_of_node(2)).warning, "");
}

TEST(Memlock, WarnsWhereEfaNeedsMore) {
  EXPECT_THAT(memlock_warning(65536, 32), AllOf(HasSubstr("65.5 kB"), HasSubstr("32 adapters")));
  EXPECT_EQ(memlock_warning(65536, 0), "");
  EXPECT_EQ(memlock_warning(UINT64_MAX, 32), "");
}

TEST(Efa, CountsAmazonsDevicesOnly) {
  fs::path sys = fs::temp_directory_path() / concat("neox_efa_test.", ::getpid());
  auto device = [&](const std::string& name, const std::string& vendor) {
    make_directories(sys / "class/infiniband" / name / "device");
    write_file_atomically(sys / "class/infiniband" / name / "device/vendor", vendor);
  };
  device("rdmap79s0", "0x1d0f\n");
  device("rdmap80s0", "0x1d0f\n");
  device("ibp3s0", "0x15b3\n");
  make_directories(sys / "devices/virtual/dmi/id");
  write_file_atomically(sys / "devices/virtual/dmi/id/sys_vendor", "Amazon EC2\n");
  write_file_atomically(sys / "devices/virtual/dmi/id/product_name", "p4d.24xlarge\n");
  EXPECT_EQ(fabric_devices(sys).efa.size(), 2u);
  EXPECT_EQ(expected_efa_adapters(instance_type(sys)), 4);
  EXPECT_EQ(fabric_devices(sys / "none").efa.size(), 0u);
  EXPECT_EQ(instance_type(sys / "none"), "");
  fs::remove_all(sys);
}

}  // namespace
}  // namespace neox
