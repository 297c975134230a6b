// One text from rank 0 to all ranks of a PMIx job, for plugin.cc; pmix.cc, or no_pmix.cc where
// there is no PMIx.
#pragma once
#include <chrono>
#include <string>

namespace neox::mpi {

// Before MPI_Init.
std::string share(const std::string& mine, std::chrono::seconds deadline);

}  // namespace neox::mpi
