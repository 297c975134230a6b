// What a node is and has: driver, GPUs, network, limits, CPUs. Reads only.
#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "doctor/nvml.h"
#include "doctor/report.h"
#include "launch/cpu.h"
#include "model/driver.h"

namespace neox {

// Appends findings and facts to the report.
// `cuda` is the CUDA version of the build, 13000 is 13.0; 0: it has none.
void check_driver(const Environment& env, const Driver& driver, int cuda, RankReport& report);
void check_gpus(const std::optional<std::vector<Gpu>>& gpus, RankReport& report);
void check_efa(const std::filesystem::path& sys, uint64_t memlock, RankReport& report);
// What the ranks will exchange over: NCCL and its plugin, or MPI.
void check_exchange(const Environment& env, int num_nodes, RankReport& report);
void check_open_files(uint64_t limit, RankReport& report);
void check_shared_memory(int64_t free, int64_t size, int local_size, RankReport& report);
void check_cpus(const CpuShare& share, const CpuCounts& counts, RankReport& report);

// All of this node, and of this rank of it.
void check_node(const Environment& env, RankReport& report, const ProcessInfo& process);
void check_rank(const Environment& env, RankReport& report, const ProcessInfo& process);

}  // namespace neox
