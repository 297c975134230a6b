// A plugin for a machine without PMIx.
#include "base/error.h"
#include "comm/mpi/share.h"

namespace neox::mpi {

std::string share(const std::string&, std::chrono::seconds) {
  fail(Exit::kUsage, "this MPI plugin was built without PMIx; install libpmix-dev and rebuild it");
}

}  // namespace neox::mpi
