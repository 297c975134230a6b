// Stands in for NCCL in a build without CUDA.
#include "base/error.h"
#include "comm/nccl.h"

namespace neox {

int nccl_version() { return 0; }

std::shared_ptr<NcclApi> nccl_api(const at::Device&) {
  fail(Exit::kUsage,
       "ranks on GPUs need NCCL, and this program was built without CUDA: make it with "
       "env/build.sh cuda");
}

std::unique_ptr<Communicator> nccl_world(const ProcessInfo&, Control&, const at::Device& device,
                                         std::chrono::seconds) {
  nccl_api(device);
  return nullptr;
}

}  // namespace neox
