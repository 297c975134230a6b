// Stands in for CUDA in a build without it.
#include "base/error.h"
#include "model/gpus.h"
#include "model/graphs.h"

namespace neox {

int cuda_runtime() { return 0; }
int visible_gpus() { return 0; }
void use_gpu(int) { fail(Exit::kInternal, "this program was built without CUDA"); }
GpuId gpu_id(int) { fail(Exit::kInternal, "this program was built without CUDA"); }

int64_t gpu_peak_memory(int) { return 0; }
UnplannedAttention::UnplannedAttention(at::Device) {}
UnplannedAttention::~UnplannedAttention() = default;
std::string attention_kernel(int, c10::ScalarType, int64_t, int64_t) { return ""; }

std::unique_ptr<GraphRecorder> graph_recorder(at::Device) { return nullptr; }

}  // namespace neox
