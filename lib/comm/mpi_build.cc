// Part of the program and of the plugin, which compare what they were built from.
#include <torch/version.h>

#include "base/version.h"
#include "comm/mpi_plugin.h"

namespace neox {

const char* mpi_plugin_build() {
  static const std::string build = std::string("neox.cpp ") + kVersion + ", torch " +
                                   TORCH_VERSION + ", interface " NEOX_MPI_INTERFACE;
  return build.c_str();
}

}  // namespace neox
