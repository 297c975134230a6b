// The communicator of MPI_COMM_WORLD, for plugin.cc.
#pragma once
#include <memory>

#include "comm/mpi_plugin.h"

namespace neox::mpi {

std::unique_ptr<Communicator> world(const MpiOptions& options);

}  // namespace neox::mpi
