// neox-doctor: checks a node, or under srun the nodes of an allocation.
#include <iostream>

#include "base/log.h"
#include "base/program.h"
#include "doctor/doctor.h"
#include "model/device.h"

using namespace neox;
namespace po = boost::program_options;

namespace {

const ProgramInfo kInfo = {
    "neox-doctor", "Check a node, or the nodes of an allocation, before a long run.",
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
  add("path", po::value(&options.paths), "directory to check, may be repeated");
  add("size", po::value<int64_t>()->default_value(256), "MB to write and read in each");
  add("ranks", "each rank says who it is, and how it was told, and ends");
  add("json", "the report as JSON");
}

int report(const Program& program, const std::vector<RankReport>& reports, int rank) {
  Diagnosis diagnosis = diagnose(reports);
  if (rank == 0)
    std::cout << (program.has("json") ? show_json(diagnosis) : show(diagnosis)) << std::flush;
  return static_cast<int>(diagnosis.fine() ? Exit::kDone : Exit::kInternal);
}

int run(int argc, char** argv) {
  Program program(kInfo);
  DoctorOptions options;
  add_options(program, options);
  if (!program.parse(argc, argv)) return 0;
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
  check_usage(process.size == 1, "a job of several ranks needs the rendezvous");
  AloneControl control;
  at::Device device = pick_device(env);
  auto world = [] { return self_communicator(); };
  return report(program, examine({process, env, control, device, world}, options), process.rank);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("neox-doctor", [&] { return run(argc, argv); });
}
