// A build without CUDA has no NCCL.
#include "base/error.h"
#include "comm/nccl.h"

namespace neox {

std::unique_ptr<Communicator> nccl_world(const ProcessInfo&, Control&, const at::Device&,
                                         std::chrono::seconds) {
  fail(Exit::kUsage, "this build has no NCCL: several ranks on GPUs need the preset cuda");
}

}  // namespace neox
