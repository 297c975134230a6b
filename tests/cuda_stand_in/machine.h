// A GPU that does everything but arithmetic, for a process on a machine that has none: what
// LibTorch and our kernels call of CUDA's runtime and driver, of cuBLAS and cuDNN. It is
// preloaded (LD_PRELOAD=libcuda.so.1), and stands for an H200.
//
// - Device memory is the host's. Streams keep what they were given until somebody waits for it:
//   later than any GPU, so that memory that is used again too early shows.
// - Kernels are checked (size of the launch, shared memory) and named, not run. What only kernels
//   write holds what lay there before, at first zeros.
// - Captures follow the CUDA programming guide: what CUDA refuses in or beside one is refused, and
//   said on the error output with "refused"; copies of pageable memory in a capture, too, because
//   a replay would read what lies there then.
// - CUDA_STAND_IN_LOG=FILE: one line for each launch, copy, wait and allocation.
// - CUDA_STAND_IN_READS="1.0 7, 3": where the host reads as many numbers of 8 bytes as a list has,
//   it finds these, doubles where they have a point, so that a program goes on that looks at its
//   results.
// - CUDA_STAND_IN_SHARED=BYTES: so much shared memory for a block at most, instead of 227 KB.
// - CUDA_STAND_IN_MEMORY=BYTES: so much memory of the device, instead of an H200's.
// - CUDA_STAND_IN_UNMADE=N: for the N-th graph there is not enough of it.
// - CUDA_STAND_IN_FAILS=N: behind N graphs the GPU's memory fails, of which most calls tell from
//   then on.
// - CUDA_STAND_IN_DEVICES=N: so many GPUs. A process that takes memory for a context on a second
//   one, as each thread does that forgets to say which is its own, is refused.
//
// One lock holds for all functions.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <mutex>
#include <string>

#include "base/error.h"

namespace cuda_stand_in {

using neox::concat;

inline constexpr size_t kSharedMemory = 48 << 10;
inline constexpr int kProcessors = 132, kVersion = 13000;

std::lock_guard<std::recursive_mutex> lock();

size_t device_memory();
size_t most_shared_memory();  // of a block that asks for it
bool may_make_graph();

// A line of the log.
void note(const std::string& line);
// The same, and on the error output; the result is what cudaGetLastError() gives next.
cudaError_t refuse(cudaError_t error, const std::string& what);

// cudaErrorECCUncorrectable once the GPU has failed.
cudaError_t failure();
void count_graph();

// Behind what the stream has, or as a node of the capture that it is in.
void enqueue(cudaStream_t stream, const std::string& what, std::function<void()> work = {});
bool is_captured(cudaStream_t stream);
void wait_for(cudaStream_t stream);
void wait_for_all();
// The calling thread's current GPU has a context from now on.
void use_context(const char* call);
// An error where a capture forbids a call that might wait; it ends that capture.
cudaError_t check_no_capture(const char* call);

// "pageable", "pinned" or "device".
std::string kind_of(const void* memory);

}  // namespace cuda_stand_in
