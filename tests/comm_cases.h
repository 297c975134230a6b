// What every communicator must do, whichever back end it has: bodies that all ranks of a world run.
#pragma once
#include <span>

#include "comm/communicator.h"

namespace neox::testing {

struct CommCase {
  const char* name;
  void (*body)(Communicator& world, at::Device device);
};

// For a world of any size; tensors lie on `device`.
std::span<const CommCase> comm_cases();
// For back ends on the CPU, which sum in the order of the ranks.
std::span<const CommCase> host_comm_cases();

}  // namespace neox::testing
