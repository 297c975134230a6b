#include "doctor/doctor.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "doctor/machine.h"
#include "doctor/speed.h"
#include "doctor/storage.h"

namespace neox {
namespace {

// The device of this rank, or the CPU with a finding.
at::Device device_of(const DoctorJob& job, RankReport& report) {
  try {
    return job.device();
  } catch (const std::exception& e) {
    report.findings.push_back(
        {Verdict::kWrong, "device", without_host(e.what(), job.process.host)});
    return at::kCPU;
  }
}

const char* kind_of(std::optional<at::Device> device) {
  if (!device) return "broken";
  return device->is_cuda() ? "GPU" : "CPU";
}

// Collective over the job. The communicator of all, or nothing with a finding: all ranks must have
// found a device of one kind, and it must compute.
std::unique_ptr<Communicator> world_of(const DoctorJob& job, std::optional<at::Device> device,
                                       RankReport& report) {
  auto kinds = job.control.gather(kind_of(device));
  try {
    check(std::ranges::count(kinds, "broken") == 0, "the device of a rank does not compute");
    check(std::ranges::count(kinds, kinds[0]) == job.process.size,
          "some ranks have a GPU and some have none");
    return job.world(*device);
  } catch (const std::exception& e) {
    report.findings.push_back({Verdict::kWrong, "all-reduce", concat("not measured: ", e.what())});
    return nullptr;
  }
}

// Each GPU by itself; of a node of CPUs, which its ranks share, all that one rank may use.
void measure_compute(const ProcessInfo& process, const at::Device& device, RankReport& report) {
  if (device.is_cuda()) return measure_matmul(device, report);
  if (process.local_rank > 0) return;
  int threads = at::get_num_threads();
  at::set_num_threads(cpu_counts().allowed);
  measure_matmul(device, report);
  at::set_num_threads(threads);
}

// The device, or nothing with a finding where it fails while it computes.
std::optional<at::Device> working(const ProcessInfo& process, const at::Device& device,
                                  RankReport& report) {
  try {
    measure_compute(process, device, report);
    return device;
  } catch (const std::exception& e) {
    std::string text = e.what();
    text.resize(std::min(text.find('\n'), text.size()));  // below it LibTorch lists its functions
    report.findings.push_back({Verdict::kWrong, "compute",
                               concat("rank ", report.rank, " on ", report.host,
                                      " cannot multiply, do not use this device: ", text)});
    return std::nullopt;
  }
}

// Collective over the job.
void measure_exchange(const DoctorJob& job, const ProcessInfo& process,
                      std::optional<at::Device> device, RankReport& report) {
  if (process.size == 1) return;
  auto world = world_of(job, device, report);
  if (!world) return;
  auto on_node = world->split(process.node, "node");
  measure_all_reduce(*on_node, *device, "all-reduce", Blame::kNode, report);
  job.control.barrier();
  if (process.num_nodes > 1)
    measure_all_reduce(*world, *device, "all-reduce of all", Blame::kNobody, report);
}

}  // namespace

std::vector<RankReport> examine(const DoctorJob& job, const DoctorOptions& options) {
  ProcessInfo process = job.process;
  number_nodes(process, job.control.gather(process.host));
  RankReport report{.rank = process.rank, .local_rank = process.local_rank, .host = process.host};
  // --exclude= takes the name that Slurm gives the node.
  if (std::string node = variable(job.env, "SLURMD_NODENAME"); !node.empty()) report.host = node;
  at::set_num_threads(cpu_share(job.env, cpu_counts(), process).threads);
  check_rank(job.env, report, process);
  if (process.local_rank == 0) {
    check_node(job.env, report, process);
    for (const std::string& path : options.paths)
      check_storage(path, options.bytes, options.paths.size() > 1 ? " " + path : "", report);
  }
  // Hundreds of nodes share the rate of a file system; heartbeats tell of a rank that is lost.
  job.control.gather("", std::chrono::hours(24));
  measure_clock(job.control, report);
  auto device = working(process, device_of(job, report), report);
  job.control.barrier();
  measure_exchange(job, process, device, report);
  auto texts = job.control.gather_to_first(pack(report), std::chrono::minutes(10));
  if (process.rank > 0) return {};
  std::vector<RankReport> reports;
  for (const std::string& text : texts) reports.push_back(unpack(text));
  return reports;
}

}  // namespace neox
