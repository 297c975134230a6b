#include "launch/cpu.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>

#include "base/control_groups.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/hostlist.h"

namespace neox {
namespace {

constexpr int kMostCpus = 1 << 20;

// CPUs that the ranks of this node have together.
int cpus_of_node(const Environment& env, const CpuCounts& counts) {
  if (variable(env, "SLURM_CPUS_ON_NODE").empty()) return std::min(counts.online, counts.in_cpuset);
  return std::min(counts.online, number_variable(env, "SLURM_CPUS_ON_NODE", 1, kMostCpus));
}

// OMP_NUM_THREADS may be a list, one number for each level of nesting.
int outer_threads(const Environment& env) {
  std::string first = split(variable(env, "OMP_NUM_THREADS"), ',')[0];
  return number_variable({{"OMP_NUM_THREADS", std::string(trim(first))}}, "OMP_NUM_THREADS", 1,
                         kMostCpus);
}

CpuShare share_of(const Environment& env, const CpuCounts& counts, const ProcessInfo& process) {
  if (!variable(env, "OMP_NUM_THREADS").empty())
    return {.threads = outer_threads(env), .reason = "OMP_NUM_THREADS"};
  if (counts.by_quota)
    return {.threads = std::max(counts.allowed / process.local_size, 1),
            .reason = concat("a quota of ", counted(counts.allowed, "CPU"))};
  int node = cpus_of_node(env, counts);
  if (int64_t{counts.allowed} * process.local_size <= node)
    return {.threads = std::max(counts.allowed, 1), .reason = "affinity mask"};
  int fair = std::max(node / process.local_size, 1);
  int of_task = variable(env, "SLURM_CPUS_PER_TASK").empty()
                    ? kMostCpus
                    : number_variable(env, "SLURM_CPUS_PER_TASK", 1, kMostCpus);
  // A task whose ranks it starts itself (--spawn) has more than is for each of them.
  if (of_task <= fair)
    return {.threads = std::min(of_task, std::max(counts.allowed, 1)),
            .reason = "SLURM_CPUS_PER_TASK"};
  return {.threads = fair,
          .reason = concat(counted(node, "CPU"), " for ", counted(process.local_size, "rank"))};
}

std::string warning_of(const Environment& env, const CpuCounts& counts, const ProcessInfo& process,
                       const CpuShare& share) {
  int fair = cpus_of_node(env, counts) / process.local_size;
  std::string who = concat("rank ", process.rank, " on ", process.host);
  if (share.reason == "OMP_NUM_THREADS") {
    if (share.threads > 1 || fair < 2 || variable(env, "PYTORCH_VERSION").empty()) return "";
    return concat(who, " uses 1 CPU thread: OMP_NUM_THREADS=1, which enroot's PyTorch hook sets; ",
                  fair, " CPUs are there for it: srun env OMP_NUM_THREADS=", fair, " ...");
  }
  bool gpu = !gpus_allotted(env).empty();
  if (share.threads < 2 && fair >= 2 && !counts.by_quota)
    return concat(who, " may use 1 CPU (affinity mask), of ", counts.online,
                  " on the node: ask for --cpus-per-task=", fair,
                  " (in a job script also export SRUN_CPUS_PER_TASK=", fair,
                  "), or start with srun --cpu-bind=none");
  if (share.threads < 2 && gpu)
    return concat(who,
                  " has 1 CPU beside its GPU; loading data and NCCL need 2 or more: ask for "
                  "--cpus-per-task=2 or more, or --exclusive");
  if (process.local_size > cpus_of_node(env, counts))
    return concat(process.local_size, " ranks on ", process.host, " share ",
                  cpus_of_node(env, counts), " CPUs: start fewer, or ask for more CPUs");
  return "";
}

int64_t cpus_of(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return std::numeric_limits<int64_t>::max();
  return (quota + period - 1) / period;
}

// "0-3,8" is 5; the largest number where the file is not there, or empty.
int64_t cpus_listed(const std::filesystem::path& file) {
  std::string list;
  if (!(std::ifstream(file) >> list)) return std::numeric_limits<int64_t>::max();
  return std::ssize(expand_hostlist(concat("[", list, "]")));
}

}  // namespace

int64_t cpus_of_groups(const std::filesystem::path& groups, const std::filesystem::path& root) {
  auto unified = [](const std::filesystem::path& group) {
    int64_t quota = 0, period = 0;  // "max 100000" has no quota
    std::ifstream(group / "cpu.max") >> quota >> period;
    return cpus_of(quota, period);
  };
  auto legacy = [](const std::filesystem::path& group) {
    int64_t quota = 0, period = 0;
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
    return cpus_of(quota, period);
  };
  return least_in_groups(groups, root, {.controller = "cpu", .unified = unified, .legacy = legacy});
}

int64_t cpus_of_cpusets(const std::filesystem::path& groups, const std::filesystem::path& root) {
  return least_in_groups(
      groups, root,
      {.controller = "cpuset",
       .unified = [](const auto& group) { return cpus_listed(group / "cpuset.cpus.effective"); },
       .legacy = [](const auto& group) { return cpus_listed(group / "cpuset.effective_cpus"); }});
}

CpuCounts cpu_counts() {
  long configured = std::max(::sysconf(_SC_NPROCESSORS_CONF), 1024L);
  size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(configured));
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(static_cast<size_t>(configured)),
                                                        [](cpu_set_t* set) { CPU_FREE(set); });
  bool told = mask && ::sched_getaffinity(0, bytes, mask.get()) == 0;
  check(told, "sched_getaffinity: ", describe_errno(errno));
  int of_mask = CPU_COUNT_S(bytes, mask.get());
  int64_t quota = cpus_of_groups("/proc/self/cgroup", "/sys/fs/cgroup");
  int64_t cpuset = cpus_of_cpusets("/proc/self/cgroup", "/sys/fs/cgroup");
  return {.allowed = static_cast<int>(std::min<int64_t>(of_mask, quota)),
          .online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
          .by_quota = quota < of_mask,
          .in_cpuset = static_cast<int>(std::min<int64_t>(cpuset, kMostCpus))};
}

CpuShare cpu_share(const Environment& env, const CpuCounts& counts, const ProcessInfo& process) {
  CpuShare share = share_of(env, counts, process);
  share.warning = warning_of(env, counts, process, share);
  return share;
}

std::string memlock_warning(uint64_t limit, int efa_adapters) {
  if (efa_adapters == 0 || limit == RLIM_INFINITY) return "";
  return concat("memory may be locked up to ", human_bytes(static_cast<double>(limit)),
                " (ulimit -l), but EFA (", efa_adapters,
                efa_adapters == 1 ? " adapter" : " adapters",
                ") needs it unlimited: Slurm passes on the limit of the shell that submits; set "
                "'* - memlock unlimited' in /etc/security/limits.conf there, or start with "
                "srun --propagate=NONE");
}

uint64_t memlock_limit() {
  rlimit limit{};
  int result = ::getrlimit(RLIMIT_MEMLOCK, &limit);
  check(result == 0, "getrlimit: ", describe_errno(errno));
  return limit.rlim_cur;
}

}  // namespace neox
