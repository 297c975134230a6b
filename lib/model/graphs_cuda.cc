#include "model/graphs.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

namespace neox {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

at::HostAllocator& pinned_memory() { return *at::getHostAllocator(at::kCUDA); }

// Memory that graphs share. Held here too, since LibTorch's allocator of pinned memory refuses to
// record with a pool that its last graph has left.
class GraphPool {
 public:
  GraphPool() {
    pinned_memory().begin_allocate_to_pool(id(), [](c10::Stream) { return false; });
    pinned_memory().end_allocate_to_pool(id());
  }
  ~GraphPool() { pinned_memory().release_pool(id()); }
  GraphPool(const GraphPool&) = delete;
  c10::MempoolId_t id() { return memory_.id(); }

 private:
  at::cuda::MemPool memory_;
};

class CudaRecorder : public GraphRecorder {
 public:
  explicit CudaRecorder(c10::DeviceIndex device) : device_(device) {
    if (c10::cuda::getCurrentCUDAStream(device) != c10::cuda::getDefaultCUDAStream(device)) return;
    c10::cuda::device_synchronize();
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(false, device));
  }

  Work record(int pool, const Work& work) override {
    // Other threads, such as one that writes a checkpoint, go on using the device meanwhile.
    constexpr auto kMode = cudaStreamCaptureModeThreadLocal;
    // What steps before have left in the allocator's hands is not at hand while recording.
    c10::cuda::device_synchronize();
    if (!keeps_memory || free_bytes() < idle_bytes()) allocator::emptyCache();
    auto graph = std::make_shared<at::cuda::CUDAGraph>();
    bool first = !pools_.contains(pool);
    auto memory = pools_.try_emplace(pool).first->second.id();
    try {
      graph->capture_begin(memory, kMode);
      work();
      graph->capture_end();
    } catch (...) {
      abandon(*graph, memory);
      graph.reset();
      if (first) pools_.erase(pool);  // what runs without a recording can have the memory
      throw;
    }
    return [graph] { graph->replay(); };
  }

 private:
  // After an error in the work, or at the end of recording, the stream may still record, and the
  // allocators still serve it out of the pool; after one that came later they do not.
  void abandon(at::cuda::CUDAGraph& graph, c10::MempoolId_t memory) {
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    (void)cudaStreamIsCapturing(stream, &status);
    cudaGraph_t unfinished = nullptr;
    if (status != cudaStreamCaptureStatusNone) (void)cudaStreamEndCapture(stream, &unfinished);
    if (unfinished) (void)cudaGraphDestroy(unfinished);
    (void)cudaGetLastError();
    if (has_ended(graph)) return;  // it lets go of the pool by itself
    allocator::endAllocateToPool(device_, memory);
    allocator::releasePool(device_, memory);
    pinned_memory().end_allocate_to_pool(memory);
    pinned_memory().release_pool(memory);
  }
  // Of the device, and of the allocator's.
  static size_t free_bytes() {
    size_t free = 0, all = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &all));
    return free;
  }
  size_t idle_bytes() const {
    auto stats = allocator::getDeviceStats(device_);
    return static_cast<size_t>(stats.reserved_bytes[0].current - stats.allocated_bytes[0].current);
  }
  static bool has_ended(at::cuda::CUDAGraph& graph) {
    try {
      graph.pool();
      return true;
    } catch (const c10::Error&) { return false; }
  }

  c10::DeviceIndex device_;
  std::map<int, GraphPool> pools_;
};

}  // namespace

std::unique_ptr<GraphRecorder> graph_recorder(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  return std::make_unique<CudaRecorder>(device.index());
}

}  // namespace neox
