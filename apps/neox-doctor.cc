// neox-doctor: checks a node, or under srun the nodes of an allocation.
#include <atomic>
#include <iostream>

#include "base/build_id.h"
#include "base/log.h"
#include "base/program.h"
#include "comm/world.h"
#include "doctor/doctor.h"
#include "launch/openmp.h"
#include "model/device.h"
#include "rendezvous/job.h"

using namespace neox;
namespace po = boost::program_options;

namespace {

const ProgramInfo kInfo = {
    "neox-doctor", "Checks a node, or the nodes of an allocation, before a long run.",
    "[--path DIR]... [options]",
    "Alone it checks this machine; under srun (one task per GPU, as the training) all nodes of\n"
    "the allocation, compares them and names those to do without. It looks at the driver, the\n"
    "GPUs, NCCL and its network, EFA, limits, CPUs, clocks and file systems, and measures a\n"
    "matrix product, an all-reduce and, in each --path, writing and reading. The exit code is 0\n"
    "where all is fine and 70 where something is wrong; notes are no fault.\n",
    "  neox-doctor                                            # this machine\n"
    "  neox-doctor --path /fsx --size 1000                    # and its shared file system\n"
    "  srun -N4 --ntasks-per-node=8 --gpus-per-node=8 neox-doctor --path /fsx\n"
    "  srun -N4 --ntasks-per-node=8 neox-doctor --ranks       # who is who, nothing else\n"
    "  srun -N4 --ntasks-per-node=8 neox-doctor --json > nodes.json\n"};

void add_options(Program& program, DoctorOptions& options) {
  auto add = program.options().add_options();
  add("path", po::value(&options.paths)->value_name("DIR"), "directory to check, may be repeated");
  add("size", number("MB")->default_value(256), "MB to write and read in each");
  add("ranks", "each rank says who it is, and how it was told, and ends");
  add("json", "the report as JSON");
}

// Collective over the processes of the job.
std::vector<RankReport> examine_job(const ProcessInfo& process, const Environment& env,
                                    const DoctorOptions& options) {
  static const std::atomic<int> no_signal = 0;  // outlives the job
  JoinOptions joining = join_options(env);
  joining.must_agree = {{"the build of neox-doctor", build_id()}};
  auto job = join(process, joining);
  job->watch([](const std::string&) {}, no_signal);  // a rank that is lost ends the others
  return examine({.process = process,
                  .env = env,
                  .control = job->control(),
                  .device = [&] { return pick_device(env, process); },
                  .world =
                      [&](const at::Device& device) {
                        check_devices_differ(device, process, job->control());
                        return world_communicator(process, job->control(), device,
                                                  {.mpi_plugin = joining.mpi_plugin});
                      }},
                 options);
}

int report(const Program& program, const std::vector<RankReport>& reports, int rank) {
  if (rank > 0) return 0;  // one voice: srun returns the highest code
  Diagnosis diagnosis = diagnose(reports);
  std::cout << (program.has("json") ? show_json(diagnosis) : show(diagnosis)) << std::flush;
  return static_cast<int>(diagnosis.fine() ? Exit::kDone : Exit::kInternal);
}

int run(int argc, char** argv) {
  Program program(kInfo);
  DoctorOptions options;
  add_options(program, options);
  if (!program.parse(argc, argv)) return 0;
  let_own_openmp_threads_sleep(argv);
  int64_t megabytes = program.get<int64_t>("size");
  check_usage(megabytes > 0 && megabytes <= 1'000'000, "--size ", megabytes,
              " is not a number of MB from 1 to 1000000");
  options.bytes = megabytes * 1'000'000;
  Environment env = environment();
  ProcessInfo process = process_info(env, host_name());
  if (program.has("ranks")) return std::cout << describe(process) + "\n", 0;
  set_log_rank(process.rank, process.size);
  for (const std::string& note : process.notes)
    if (process.rank == 0) log_info(note);
  return report(program, examine_job(process, env, options), process.rank);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("neox-doctor", [&] { return run(argc, argv); });
}
