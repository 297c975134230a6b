// What the MPI plugin (libneox_mpi.so) gives: the only part of the project that links MPI and PMIx.
// It is loaded when it is asked for, so that a GPU job needs neither library, and a site can build
// it against its own MPI.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace neox {

struct MpiPlugin {
  // "neox.cpp 0.1.0, torch 2.11.0": must equal the program's.
  const char* build;
  const char* library;  // "Open MPI v4.1.4 ..."
  // Collective over MPI_COMM_WORLD. MPI_Init at the first call; MPI_Finalize when the communicator
  // ends without an abort.
  std::unique_ptr<Communicator> (*world)(std::chrono::seconds deadline);
  // Collective over the PMIx job. Rank 0's text on all ranks. Throws where no server answers.
  std::string (*share)(const std::string& mine, std::chrono::seconds deadline);
};

// The symbol of the plugin.
using MpiPluginEntry = const MpiPlugin* (*)();
inline constexpr const char* kMpiPluginEntry = "neox_mpi_plugin";

// Loads the plugin once; path empty: beside the program (../lib/neox, or the build tree). Throws
// (64) naming the places looked at and what is missing.
const MpiPlugin& mpi_plugin(const std::string& path);

}  // namespace neox
