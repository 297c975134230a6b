// What kernels of generation's steps share: loads past the first level of the cache and into shared
// memory, products by tensor cores, and blocks that read each other's memory. What a device lacks
// is left out there.
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

// 16 bytes from global into shared memory, on their way until await_copies(); zeros unless they
// exist.
__device__ inline void begin_copy(void* to, const void* from, bool exist) {
  NV_IF_ELSE_TARGET(
      NV_PROVIDES_SM_80,
      (asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                        static_cast<unsigned>(__cvta_generic_to_shared(to))),
                    "l"(__cvta_generic_to_global(from)), "r"(exist ? 16 : 0)
                    : "memory");),
      (*reinterpret_cast<uint4*>(to) = exist ? *reinterpret_cast<const uint4*>(from) : uint4{};))
}
// What this thread has begun since the last call is one group.
__device__ inline void end_copies() {
  NV_IF_TARGET(NV_PROVIDES_SM_80, (asm volatile("cp.async.commit_group;" ::: "memory");))
}
// Until no more than kLater groups of this thread's are on their way, the latest ones.
template <int kLater>
__device__ void await_copies() {
  NV_IF_TARGET(NV_PROVIDES_SM_80, (asm volatile("cp.async.wait_group %0;" ::"n"(kLater)
                                                : "memory");))
}

// sums += the rows of x times those of w, four elements of 16 bits of each. Lane 4 i + j has
// elements of row i of x and of row i of w, together with three others, and in sums[0] and sums[1]
// those of row i of x with rows 2 j and 2 j + 1 of w; sums[2] and sums[3] stay what they are.
template <class T>
__device__ void add_products_by_exchange(float (&sums)[4], uint2 x, uint2 w) {
  unsigned lane = threadIdx.x % 32;
  uint2 of_x[4], of_w[2][4];
  for (unsigned mask = 0; mask < 32; ++mask) {
    uint2 a = {__shfl_xor_sync(kAllLanes, x.x, mask), __shfl_xor_sync(kAllLanes, x.y, mask)},
          b = {__shfl_xor_sync(kAllLanes, w.x, mask), __shfl_xor_sync(kAllLanes, w.y, mask)};
    unsigned row = (lane ^ mask) / 4, part = (lane ^ mask) % 4;
    if (row == lane / 4) of_x[part] = a;
    if (row / 2 == lane % 4) of_w[row % 2][part] = b;
  }
  for (int n = 0; n < 2; ++n)
    for (int part = 0; part < 4; ++part)
      for (int i = 0; i < 4; ++i)
        sums[n] += static_cast<float>(reinterpret_cast<const T*>(&of_x[part])[i]) *
                   static_cast<float>(reinterpret_cast<const T*>(&of_w[n][part])[i]);
}

// The same by tensor cores. Products of 16 x 8 x 16, of whose 16 rows x has the first eight.
#define NEOX_ROW_PRODUCTS(type)                                              \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %5}, {%7, %8}, {%0, %1, %2, %3};" \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])           \
      : "r"(x.x), "r"(0), "r"(x.y), "r"(w.x), "r"(w.y));
__device__ inline void add_row_products(__nv_bfloat16, float (&sums)[4], uint2 x, uint2 w) {
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_80, (NEOX_ROW_PRODUCTS("bf16")),
                    (add_products_by_exchange<__nv_bfloat16>(sums, x, w);))
}
__device__ inline void add_row_products(__half, float (&sums)[4], uint2 x, uint2 w) {
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_80, (NEOX_ROW_PRODUCTS("f16")),
                    (add_products_by_exchange<__half>(sums, x, w);))
}
#undef NEOX_ROW_PRODUCTS

}  // namespace neox::cuda
