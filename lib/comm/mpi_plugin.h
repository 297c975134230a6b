// What the MPI plugin (libneox_mpi.so) gives: the only part of the project that links MPI and PMIx.
// It is loaded when it is asked for, so that a GPU job needs neither library, and a site can build
// it against its own MPI (lib/comm/mpi/CMakeLists.txt says how).
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace neox {

struct MpiOptions {
  std::chrono::seconds deadline{600};  // of a single wait
  // How tensors are cut; tests take other values, which change no bit of a result.
  int64_t message_bytes = int64_t{1} << 30;  // at most, in one call of MPI
  int64_t chunk_bytes = int64_t{1} << 18;    // of each rank's at a time while they are reduced
  // Tensors from this size are read straight from the memory of the other ranks, where all ranks of
  // a group are on one node and may do so.
  int64_t direct_bytes = int64_t{1} << 17;
};

struct MpiPlugin {
  const char* build;    // must equal mpi_plugin_build() of the program
  const char* library;  // "Open MPI v4.1.4 ..."
  // Collective over MPI_COMM_WORLD. MPI_Init at the first call; MPI_Finalize when the last
  // communicator ends, unless there was an abort or an exception is on its way: it would hang.
  // abort() wakes the waits of this process; a time-out also those of the others.
  std::unique_ptr<Communicator> (*world)(const MpiOptions& options);
  // Collective over the PMIx job, before, beside or without world(). Rank 0's text on all ranks.
  // Throws where no server answers.
  std::string (*share)(const std::string& mine, std::chrono::seconds deadline);
};

// The symbol of the plugin.
using MpiPluginEntry = const MpiPlugin* (*)();
inline constexpr const char* kMpiPluginEntry = "neox_mpi_plugin";

// "neox.cpp 0.1.0, torch 2.11.0, interface 3f9a01c2": the last a hash of the headers that both sides
// go by, which may change within a version.
const char* mpi_plugin_build();

// Loads the plugin once; path empty: ../lib/neox beside the program. Throws (64) naming the place
// looked at and what is missing.
const MpiPlugin& mpi_plugin(const std::string& path);

}  // namespace neox
