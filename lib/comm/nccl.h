// Ranks on GPUs. In a build without CUDA nccl_world() throws.
#pragma once
#include <chrono>
#include <memory>

#include "comm/communicator.h"
#include "comm/nccl_api.h"
#include "launch/control.h"
#include "launch/process_info.h"

namespace neox {

// Of the library in use: 22809 is 2.28.9. 0 in a build without CUDA.
int nccl_version();

// The calls themselves, for the GPU `device`; throws (64) where the library cannot be loaded.
std::shared_ptr<NcclApi> nccl_api(const at::Device& device);

// Collective over control, whose rank and size are those of `process`. The communicator of all
// ranks, on this rank's GPU. Throws where they do not come together within the deadline, which
// holds for each operation too.
std::unique_ptr<Communicator> nccl_world(const ProcessInfo& process, Control& control,
                                         const at::Device& device, std::chrono::seconds deadline);

}  // namespace neox
