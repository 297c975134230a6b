// How many CPU threads a rank may use, so that the ranks of a node do not share CPUs, and the
// limits of memory that network adapters need locked.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "launch/process_info.h"

namespace neox {

struct CpuCounts {
  int allowed;            // by the affinity mask of this process, and its groups' quota
  int online;             // of the machine
  bool by_quota = false;  // which is the smaller one, and the ranks of a node share it
  int in_cpuset = std::numeric_limits<int>::max();  // of the online ones, in its groups' cpuset
};

// What the quota of CPU time of a process's control groups comes to (docker --cpus, limits of
// Kubernetes), rounded up; the largest number where there is none. As least_in_groups().
int64_t cpus_of_groups(const std::filesystem::path& groups, const std::filesystem::path& root);

// The CPUs of the cpuset of a process's control groups (docker --cpuset-cpus); otherwise the same.
int64_t cpus_of_cpusets(const std::filesystem::path& groups, const std::filesystem::path& root);

CpuCounts cpu_counts();

struct CpuShare {
  int threads = 1;
  std::string reason;   // "OMP_NUM_THREADS", "affinity mask", ...
  std::string warning;  // where a rank has fewer than it needs or could have: what to do; else ""
};

// A set OMP_NUM_THREADS rules. Else the CPUs of the affinity mask, divided among the ranks of the
// node where they must share them (srun --cpu-bind=none, mpirun without binding, torchrun): by
// SLURM_CPUS_PER_TASK where that is set, else evenly. Together they have SLURM_CPUS_ON_NODE, or
// else their cpuset.
CpuShare cpu_share(const Environment& env, const CpuCounts& counts, const ProcessInfo& process);

// What RLIMIT_MEMLOCK (in bytes; RLIM_INFINITY is enough) means for so many EFA adapters: what to
// do where it is too low, else "".
std::string memlock_warning(uint64_t limit, int efa_adapters);
uint64_t memlock_limit();

}  // namespace neox
