#include "comm/world.h"

#include "base/error.h"
#include "comm/mpi_plugin.h"
#include "comm/nccl.h"
#include "launch/environment.h"

namespace neox {
namespace {

// All ranks go on, or all throw: what stops one would leave the others waiting for it.
void agree(const ProcessInfo& process, Control& control, const std::string& trouble) {
  std::string first;
  int others = -1;
  auto all = control.gather(
      trouble.empty() ? "" : concat("rank ", process.rank, " on ", process.host, ": ", trouble));
  for (const std::string& text : all) {
    if (text.empty()) continue;
    if (first.empty()) first = text;
    ++others;
  }
  if (others > 0) first += concat(" (and ", others, " other ranks)");
  check_usage(first.empty(), first);
}

// MPI_Init ends the process, or makes a world of one, where no launcher of MPI's started it: Open
// MPI wants a PMIx server; others take PMI as well.
std::string without_launcher(const ProcessInfo& process, const std::string& library,
                             const Environment& env) {
  auto has = [&](const char* name) { return env.count(name) > 0; };
  bool pmix = has("PMIX_RANK") || has("OMPI_COMM_WORLD_RANK");
  bool pmi = has("PMI_RANK") || has("PMI_FD");
  bool open_mpi = library.find("Open MPI") != std::string::npos;
  if (pmix || (pmi && !open_mpi)) return "";
  return concat("this is rank ", process.rank, " of ", process.size, " by ", process.launcher,
                ", but ", library, " would not see the other ranks: there is no PMIx server",
                pmi ? ", only PMI" : "", "; start the job with srun --mpi=pmix, or with mpirun");
}

std::unique_ptr<Communicator> mpi_world(const ProcessInfo& process, Control& control,
                                        const WorldOptions& options) {
  const MpiPlugin* plugin = nullptr;
  std::string trouble;
  try {
    plugin = &mpi_plugin(options.mpi_plugin);
    trouble = without_launcher(process, plugin->library, environment());
  } catch (const Error& e) { trouble = e.what(); }
  agree(process, control, trouble);
  auto world = plugin->world({.deadline = options.deadline});
  if (world->rank() != process.rank || world->size() != process.size)
    trouble = concat(plugin->library, " says rank ", world->rank(), " of ", world->size(), ", ",
                     process.launcher, " says rank ", process.rank, " of ", process.size,
                     "; start the job with srun --mpi=pmix, or with mpirun, and let one of the "
                     "two number the ranks");
  agree(process, control, trouble);
  return world;
}

}  // namespace

std::unique_ptr<Communicator> world_communicator(const ProcessInfo& process, Control& control,
                                                 const at::Device& device,
                                                 const WorldOptions& options) {
  if (process.size == 1) return self_communicator();
  if (device.is_cuda()) return nccl_world(process, control, device, options.deadline);
  check_usage(device.is_cpu(), "no communicator for several ranks on device ", device.str());
  return mpi_world(process, control, options);
}

}  // namespace neox
