// NCCL: the communicator of ranks that are processes with a GPU each.
#pragma once
#include <chrono>
#include <memory>

#include "comm/communicator.h"
#include "launch/control.h"
#include "launch/process_info.h"

namespace neox {

// Collective over all processes of the job; ids go over `control`.
std::unique_ptr<Communicator> nccl_world(const ProcessInfo& process, Control& control,
                                         const at::Device& device, std::chrono::seconds deadline);

}  // namespace neox
