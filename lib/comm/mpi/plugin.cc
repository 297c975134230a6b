// The entry of libneox_mpi.so, its only symbol that others see.
#include <mpi.h>

#include "comm/mpi/communicator.h"
#include "comm/mpi/share.h"
#include "comm/mpi_plugin.h"

namespace neox::mpi {
namespace {

// The first line, without the space that some libraries put at its end.
std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string line(text, static_cast<size_t>(length));
  return line.substr(0, line.find_first_of(",\n"));
}

}  // namespace
}  // namespace neox::mpi

extern "C" [[gnu::visibility("default")]] const neox::MpiPlugin* neox_mpi_plugin() {
  static const std::string library = neox::mpi::library_version();
  static const neox::MpiPlugin plugin{neox::mpi_plugin_build(), library.c_str(), neox::mpi::world,
                                      neox::mpi::share};
  return &plugin;
}
