// What a node is and has: driver, GPUs, EFA, limits, CPUs. Reads only.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "doctor/nvml.h"
#include "doctor/report.h"
#include "launch/cpu.h"

namespace neox {

// Appends findings and facts to the report.
void check_driver(const Environment& env, const std::filesystem::path& proc, RankReport& report);
void check_gpus(const std::optional<std::vector<Gpu>>& gpus, RankReport& report);
void check_efa(const std::filesystem::path& sys, uint64_t memlock, RankReport& report);
void check_open_files(uint64_t limit, RankReport& report);
void check_shared_memory(int64_t free, int64_t size, int local_size, RankReport& report);
void check_cpus(const CpuShare& share, const CpuCounts& counts, RankReport& report);

// All of this node, and of this rank of it.
void check_node(const Environment& env, RankReport& report, const ProcessInfo& process);
void check_rank(const Environment& env, RankReport& report, const ProcessInfo& process);

// "580.95.05" out of /proc/driver/nvidia/version; "" where it is not there.
std::string driver_version(const std::string& text);

}  // namespace neox
