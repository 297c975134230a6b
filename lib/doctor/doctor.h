// Checks a node, or the nodes of a job, rank by rank.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "doctor/report.h"
#include "launch/control.h"
#include "launch/process_info.h"

namespace neox {

struct DoctorOptions {
  std::vector<std::string> paths;
  int64_t bytes = 256 << 20;  // written to and read from each path, by one rank of a node
};

struct DoctorJob {
  const ProcessInfo& process;
  const Environment& env;
  Control& control;
  // May throw, on any rank.
  std::function<at::Device()> device;
  // Collective; may throw, on all ranks alike, where there is no back end for them.
  std::function<std::unique_ptr<Communicator>(const at::Device&)> world;
};

// Collective over the job. Every rank's report, by rank, on rank 0; none on the others, of which a
// thousand would each be sent a thousand reports.
std::vector<RankReport> examine(const DoctorJob& job, const DoctorOptions& options);

}  // namespace neox
