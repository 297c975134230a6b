// The communicator of all processes of a job.
#pragma once
#include <chrono>
#include <memory>

#include "comm/communicator.h"
#include "launch/control.h"
#include "launch/process_info.h"

namespace neox {

struct WorldOptions {
  std::chrono::seconds deadline{600};  // of a single wait
  std::string mpi_plugin;              // NEOX_MPI_PLUGIN; empty: beside the program
};

// Collective. A process alone: the group of one. Several on GPUs: NCCL, several on CPUs: MPI, which
// must see the same ranks as `process`. Throws where the back end is absent, saying how to get it.
std::unique_ptr<Communicator> world_communicator(const ProcessInfo& process, Control& control,
                                                 const at::Device& device,
                                                 const WorldOptions& options = {});

}  // namespace neox
