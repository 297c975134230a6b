// Stands in for CUDA in a build without it.
#include "base/error.h"
#include "model/gpus.h"

namespace neox {

int cuda_runtime() { return 0; }
int visible_gpus() { return 0; }
void use_gpu(int) { fail(Exit::kInternal, "this program was built without CUDA"); }
GpuId gpu_id(int) { fail(Exit::kInternal, "this program was built without CUDA"); }

}  // namespace neox
