// The communicator of ranks on GPUs, over NCCL: one process per rank. Works on the current stream
// of the device, so an operation is ordered with the kernels before and after it, and tensors need
// no care beyond that; under capture it becomes part of the graph. Results are there when the
// stream has come so far.
//
// After an error, or an abort, of any of them all communicators of the process are aborted. Other
// processes are told by the job's own watch (rendezvous/job.h).
#pragma once
#include <memory>

#include "comm/communicator.h"
#include "comm/nccl_process.h"
#include "launch/control.h"

namespace neox {

inline constexpr int kNcclOldest = 21800;  // the first with ncclCommSplit

// Collective over control, which carries the id of rank 0. The communicators that come of split()
// take their device and times from here. A split into groups of one gives self_communicator(), one
// into a single group shares the parent's NCCL communicator.
std::unique_ptr<Communicator> nccl_communicator(std::shared_ptr<NcclApi> api, Control& control,
                                                const at::Device& device, const NcclTimes& times);

}  // namespace neox
