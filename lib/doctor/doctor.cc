#include "doctor/doctor.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/error.h"
#include "doctor/machine.h"
#include "doctor/speed.h"
#include "doctor/storage.h"

namespace neox {
namespace {

void measure_exchange(const DoctorJob& job, int node, int num_nodes, RankReport& report) {
  if (job.process.size == 1) return;
  std::unique_ptr<Communicator> world;
  try {
    world = job.world();
  } catch (const std::exception& e) {
    report.findings.push_back({Verdict::kWrong, "all-reduce", concat("not measured: ", e.what())});
    return;
  }
  auto on_node = world->split(node, "node");
  measure_all_reduce(*on_node, job.device, "all-reduce", Blame::kNode, report);
  job.control.barrier();
  if (num_nodes > 1)
    measure_all_reduce(*world, job.device, "all-reduce of all", Blame::kNobody, report);
}

}  // namespace

std::vector<RankReport> examine(const DoctorJob& job, const DoctorOptions& options) {
  ProcessInfo process = job.process;
  number_nodes(process, job.control.gather(process.host));
  RankReport report{.rank = process.rank, .local_rank = process.local_rank, .host = process.host};
  at::set_num_threads(cpu_share(job.env, cpu_counts(), process).threads);
  check_rank(job.env, report, process);
  if (process.local_rank == 0) {
    check_node(job.env, report, process);
    for (const std::string& path : options.paths) check_storage(path, options.bytes, report);
  }
  job.control.barrier();
  measure_clock(job.control, report);
  measure_matmul(job.device, report);
  job.control.barrier();
  measure_exchange(job, process.node, process.num_nodes, report);
  std::vector<RankReport> reports;
  for (const std::string& text : job.control.gather(pack(report))) reports.push_back(unpack(text));
  return reports;
}

}  // namespace neox
