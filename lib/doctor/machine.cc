#include "doctor/machine.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <map>

#include "base/error.h"
#include "base/text.h"
#include "comm/mpi_plugin.h"
#include "comm/nccl.h"
#include "comm/network.h"
#include "launch/efa.h"
#include "model/gpus.h"

namespace neox {
namespace {

namespace fs = std::filesystem;

// Open files that a rank may need: sockets to its peers, data files, libraries.
constexpr uint64_t kOpenFiles = 4096;
// NCCL's buffers between the GPUs of a node, for each of them.
constexpr int64_t kSharedBytes = 128 << 20;

void say(RankReport& report, Verdict verdict, const std::string& check, const std::string& text) {
  report.findings.push_back({verdict, check, text});
}

void check_health(size_t index, const Gpu& gpu, RankReport& report) {
  std::string who = concat("GPU ", index, " of ", report.host);
  if (gpu.remap_failed)
    say(report, Verdict::kWrong, "GPU", who + " has no spare memory rows left: replace it");
  if (gpu.ecc_errors > 0)
    say(report, Verdict::kWrong, "GPU",
        concat(who, " had ", counted(gpu.ecc_errors, "memory error"),
               " that ECC could not correct: reset it, or use another node"));
  if (gpu.remap_pending)
    say(report, Verdict::kNote, "GPU",
        who + " replaces a damaged memory row at its next reset: reset it between jobs");
  if (gpu.slowed_by_hardware)
    say(report, Verdict::kNote, "GPU",
        concat(who, " is slowed down by its hardware, for heat or power (", gpu.temperature,
               " C)"));
}

}  // namespace

void check_driver(const Environment& env, const Driver& driver, int cuda, RankReport& report) {
  std::string allotted = gpus_allotted(env), problem;
  report.facts["driver"] = driver.version.empty() ? "none" : driver.version;
  if (driver.version.empty() && !allotted.empty())
    problem = concat("GPUs were allotted (", allotted, "), but no NVIDIA driver is loaded");
  else if (cuda > 0)
    problem = without_host(driver_problem(driver, cuda, report.host), report.host);
  if (!problem.empty()) return say(report, Verdict::kWrong, "driver", problem);
  if (driver.version.empty())
    return say(report, Verdict::kFine, "driver",
               "no NVIDIA driver: this node computes on its CPUs");
  say(report, cuda > 0 ? Verdict::kFine : Verdict::kNote, "driver",
      concat("NVIDIA ", driver.version,
             cuda > 0 ? "" : ", but this build has no CUDA: make one with env/build.sh cuda"));
}

void check_gpus(const std::optional<std::vector<Gpu>>& gpus, RankReport& report) {
  if (!gpus) {
    if (report.facts["driver"] != "none")
      say(report, Verdict::kWrong, "GPU",
          "the driver is loaded, but libnvidia-ml.so.1 does not answer: in a container set "
          "NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=compute,utility");
    return;
  }
  std::map<std::string, int> kinds;
  for (const Gpu& gpu : *gpus)
    ++kinds[concat(gpu.name, ", ", human_bytes(static_cast<double>(gpu.memory_bytes)))];
  std::vector<std::string> texts;
  for (const auto& [kind, count] : kinds) texts.push_back(concat(count, " x ", kind));
  std::string all = texts.empty() ? "none" : join(texts, "; ");
  report.facts["GPUs"] = all;
  say(report, Verdict::kFine, "GPU", all);
  for (size_t i = 0; i < gpus->size(); ++i) check_health(i, (*gpus)[i], report);
}

void check_efa(const fs::path& sys, uint64_t memlock, RankReport& report) {
  std::string type = instance_type(sys);
  auto found = static_cast<int>(fabric_devices(sys).efa.size());
  int expected = expected_efa_adapters(type);
  std::string of_type = type.empty() ? "" : " (" + type + ")";
  report.facts["EFA"] = concat(found, of_type);
  std::string ports = fabric_ports(sys);
  report.facts["InfiniBand"] = ports;  // a dead one costs a node's share of every exchange
  if (ports != "none") say(report, Verdict::kFine, "InfiniBand", ports);
  if (found == expected || (expected == 0 && found > 0))
    say(report, Verdict::kFine, "EFA",
        found == 0 ? "none" + of_type : counted(found, "adapter") + of_type);
  else
    say(report, Verdict::kWrong, "EFA",
        concat(counted(found, "adapter"), ", but ", type, " has ", expected,
               found == 0 ? ": install the EFA driver, start the node with EFA interfaces, and in "
                            "a container mount /dev/infiniband"
                          : ": start the node with all its EFA interfaces"));
  std::string warning = memlock_warning(memlock, found);
  std::string limit =
      memlock == RLIM_INFINITY ? "unlimited" : human_bytes(static_cast<double>(memlock));
  say(report, warning.empty() ? Verdict::kFine : Verdict::kWrong, "memlock",
      warning.empty() ? limit : warning);
}

void check_exchange(const Environment& env, int num_nodes, RankReport& report) {
  if (int version = nccl_version(); version > 0) {
    std::string text = nccl_version_text(version);
    report.facts["NCCL"] = text;
    NetworkReport network = describe_network({text, env, num_nodes, "/", find_library});
    for (const std::string& line : network.lines) say(report, Verdict::kFine, "NCCL", line);
    for (const std::string& line : network.warnings) say(report, Verdict::kWrong, "NCCL", line);
    return;
  }
  try {
    std::string library = mpi_plugin(variable(env, "NEOX_MPI_PLUGIN")).library;
    say(report, Verdict::kFine, "MPI", library);
  } catch (const Error& e) { say(report, Verdict::kNote, "MPI", e.what()); }
}

void check_open_files(uint64_t limit, RankReport& report) {
  std::string text =
      limit == RLIM_INFINITY ? "unlimited" : with_commas(static_cast<int64_t>(limit));
  if (limit >= kOpenFiles) return say(report, Verdict::kFine, "open files", text);
  say(report, Verdict::kNote, "open files",
      concat(text, " (ulimit -n); large jobs need ", with_commas(kOpenFiles),
             " or more: raise it in the shell that submits"));
}

void check_shared_memory(int64_t free, int64_t size, int local_size, RankReport& report) {
  std::string text = concat(human_bytes(static_cast<double>(free)), " free of ",
                            human_bytes(static_cast<double>(size)));
  if (free >= kSharedBytes * local_size) return say(report, Verdict::kFine, "/dev/shm", text);
  say(report, Verdict::kNote, "/dev/shm",
      concat(text, ", ", counted(local_size, "rank"), " may need ",
             human_bytes(static_cast<double>(kSharedBytes * local_size)),
             ": remove what ended jobs left there; in docker use --ipc=host"));
}

void check_cpus(const CpuShare& share, const CpuCounts& counts, RankReport& report) {
  say(report, share.warning.empty() ? Verdict::kFine : Verdict::kNote, "CPU",
      share.warning.empty() ? concat(counted(share.threads, "thread"), " for each rank (",
                                     share.reason, "), ", counted(counts.online, "CPU"))
                            : share.warning);
}

void check_node(const Environment& env, RankReport& report, const ProcessInfo& process) {
  check_driver(env, find_driver(), cuda_runtime(), report);
  check_gpus(list_gpus(), report);
  check_efa("/sys", memlock_limit(), report);
  check_exchange(env, process.num_nodes, report);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) check_open_files(files.rlim_cur, report);
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    auto bytes = static_cast<int64_t>(shm.f_frsize);
    check_shared_memory(static_cast<int64_t>(shm.f_bavail) * bytes,
                        static_cast<int64_t>(shm.f_blocks) * bytes, process.local_size, report);
  }
}

void check_rank(const Environment& env, RankReport& report, const ProcessInfo& process) {
  CpuCounts counts = cpu_counts();
  check_cpus(cpu_share(env, counts, process), counts, report);
}

}  // namespace neox
