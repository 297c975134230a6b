// What kernels of generation's steps share: loads past the first level of the cache, and blocks
// that read each other's memory. What a device lacks is left out there.
#pragma once
#include "ops/cuda_kernels.cuh"

namespace neox::cuda {

// Blocks beside each other in x that run at the same time and read each other's shared memory.
constexpr int64_t kMostClusterBlocks = 8;
inline bool has_clusters() { return device_attribute(cudaDevAttrClusterLaunch) != 0; }
// What they wrote before is seen behind it.
__device__ inline void meet_cluster() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::
                                                    : "memory");))
}
// The same without a word on what they wrote: none goes on before all have come.
__device__ inline void await_cluster() {
  NV_IF_TARGET(NV_PROVIDES_SM_90,
               (asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::
                                 : "memory");))
}
// Where a block of the cluster has what this one has there in shared memory.
template <class W>
__device__ const W* peer_of(const W* mine, [[maybe_unused]] int block) {
  const W* theirs = mine;
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("mapa.u64 %0, %1, %2;"
                                                : "=l"(theirs)
                                                : "l"(mine), "r"(block));))
  return theirs;
}

// Asks for memory to be brought into the second level of the cache; bytes: a multiple of 16, as
// `from` is. From compute capability 9.0 on.
__device__ inline void fetch_ahead([[maybe_unused]] const void* from,
                                   [[maybe_unused]] unsigned bytes) {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                                                    __cvta_generic_to_global(from)),
                                                "r"(bytes));))
}

// From global memory, past the first level of the cache, in which there may be what lay there
// before the kernel that wrote it.
template <class T>
__device__ Words<T> load_words_fresh(const T* from) {
  return {{__ldcg(reinterpret_cast<const uint4*>(from))}};
}

}  // namespace neox::cuda
