// One text from rank 0 to all ranks of a PMIx job, for plugin.cc; pmix.cc, or no_pmix.cc where
// there is no PMIx.
#pragma once
#include <chrono>
#include <string>

namespace neox::mpi {

std::string share(const std::string& mine, std::chrono::seconds deadline);
// Until the next share() this process is no user of PMIx.
void leave_pmix();

}  // namespace neox::mpi
