// A block takes a row. Its logits are read once for their maximum and the sum of exponentials
// together, which each thread keeps for the part that it has seen, and once more for the gradients:
// from shared memory where two rows fit into a multiprocessor's, else mostly from the L2 cache.
#include "ops/cross_entropy.h"
#include "ops/cuda_kernels.cuh"

namespace neox {
namespace {

using namespace cuda;

constexpr int kThreads = 512;
// Of a multiprocessor's; with two, the rows that are read a second time fit the L2 cache.
constexpr int kBlocks = 2;

// The maximum of what a thread has seen, and the sum of exp(x - top).
template <class W>
struct Seen {
  W top = -INFINITY, sum = 0;
  template <int N, class Elements>
  __device__ void add(const Elements& x) {
    W larger = top;
#pragma unroll
    for (int j = 0; j < N; ++j) larger = fmax(larger, x[j]);
    W base = base_of(larger);
    sum *= exp_of(top - base);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += exp_of(x[j] - base);
    top = larger;
  }
  __device__ W sum_for(W other) const { return sum * exp_of(top - base_of(other)); }

 private:
  static __device__ W base_of(W x) { return x > -INFINITY ? x : W(0); }  // all may be -inf
};

// Reads `from`, which is the row or a copy.
template <class T, int N>
__device__ void to_gradients(const T* from, T* row, int64_t columns, int64_t target, Wide<T> top,
                             Wide<T> sum, Wide<T> factor) {
  using W = Wide<T>;
  W scale = factor / sum;
  for_packs<kThreads, T, N>(from, columns, [&](int64_t i, const Held<T, N>& x) {
    Pack<T, N> y;
#pragma unroll
    for (int j = 0; j < N; ++j) y.at[j] = static_cast<T>(exp_of(x[j] - top) * scale);
    bool has_target = target >= i && target < i + N;
    W chosen = has_target ? static_cast<W>(row[target]) : 0;
    store_pack<T, N>(row + i, y);
    // The probability of the target and 1 are close to each other: T would round their difference.
    if (has_target) row[target] = static_cast<T>(exp_of(chosen - top) * scale - factor);
  });
}

template <class T>
struct RowOf {
  T* row;
  int64_t target;  // a column, or outside
  __device__ explicit RowOf(const CrossEntropyRows& r)
      : row(static_cast<T*>(r.logits) + blockIdx.x * r.columns),
        target(r.target[blockIdx.x] - r.first) {}
  __device__ Wide<T> at_target(const CrossEntropyRows& r) const {
    return target >= 0 && target < r.columns ? static_cast<Wide<T>>(row[target]) : 0;
  }
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads, kBlocks) gradients_kernel(CrossEntropyRows r) {
  using W = Wide<T>;
  RowOf<T> row(r);
  to_gradients<T, N>(row.row, row.row, r.columns, row.target, static_cast<W*>(r.top)[blockIdx.x],
                     static_cast<W*>(r.sums)[blockIdx.x],
                     static_cast<const W*>(r.factor)[blockIdx.x]);
}

// 16 bytes on their way into shared memory, past registers and the L1 cache.
__device__ inline void copy_async(void* shared, const void* from) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE,
                    (asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                                      static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                                  "l"(from)
                                  : "memory");),
                    (*reinterpret_cast<uint4*>(shared) = *reinterpret_cast<const uint4*>(from);))
}
// Those of this thread since it last called this become a group.
__device__ inline void end_copies() {
  NV_IF_TARGET(NV_IS_DEVICE, (asm volatile("cp.async.commit_group;" ::: "memory");))
}
// Until all of this thread's groups but the last kLast are there, for this thread.
template <int kLast>
__device__ void wait_for_copies() {
  NV_IF_TARGET(NV_IS_DEVICE, (asm volatile("cp.async.wait_group %0;" ::"n"(kLast) : "memory");))
}

template <class T, int N>
__device__ void see(Seen<Wide<T>>& seen, const T* row, int64_t columns) {
  for_packs<kThreads, T, N>(row, columns,
                            [&](int64_t, const Held<T, N>& x) { seen.template add<N>(x); });
}

template <class T, int N>
__device__ void copy_row(T* to, const T* row, int64_t columns) {
  for (auto i = static_cast<int>(threadIdx.x) * N; i < columns; i += kThreads * N)
    copy_async(to + i, row + i);
  end_copies();
}

// A copy of the row is under way in two parts: of each a thread reads only what it has copied.
template <class T, int N>
__device__ void copy_and_see(Seen<Wide<T>>& seen, T* copy, const T* row, int64_t columns) {
  int64_t part = columns / 2 / (kThreads * N) * (kThreads * N);
  copy_row<T, N>(copy, row, part);
  copy_row<T, N>(copy + part, row + part, columns - part);
  wait_for_copies<1>();
  see<T, N>(seen, copy, part);
  wait_for_copies<0>();
  see<T, N>(seen, copy + part, columns - part);
}

template <class T, int N, bool kCopies>
__global__ void __launch_bounds__(kThreads, kBlocks) cross_entropy_kernel(CrossEntropyRows r) {
  using W = Wide<T>;
  extern __shared__ uint4 copied[];
  RowOf<T> row(r);
  T* from = kCopies ? reinterpret_cast<T*>(copied) : row.row;
  Seen<W> seen;
  if constexpr (kCopies)
    copy_and_see<T, N>(seen, from, row.row, r.columns);
  else
    see<T, N>(seen, from, r.columns);
  W top = over_block(seen.top, Larger(), static_cast<W>(-INFINITY));
  W sum = over_block(seen.sum_for(top), Add(), W(0));
  if (threadIdx.x == 0) {
    auto* sums = static_cast<W*>(r.sums);
    static_cast<W*>(r.top)[blockIdx.x] = top;
    sums[blockIdx.x] = sum;
    sums[r.rows + blockIdx.x] = row.at_target(r);
  }
  __syncthreads();  // the target's logit is read above and overwritten below
  if (r.factor)
    to_gradients<T, N>(from, row.row, r.columns, row.target, top, sum,
                       static_cast<const W*>(r.factor)[blockIdx.x]);
}

// With what a kernel takes itself and 1 KB that the device takes, twice.
bool copies_fit(int64_t bytes) {
  return kBlocks * (bytes + 4096) <= device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
}

template <class T, int N>
void launch_cross_entropy(const CrossEntropyRows& r) {
  if constexpr (N == kPack<T>) {
    size_t bytes = static_cast<size_t>(r.columns) * sizeof(T);
    if (r.factor && copies_fit(static_cast<int64_t>(bytes))) {
      auto kernel = cross_entropy_kernel<T, N, true>;
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes));
      kernel<<<blocks(r.rows), kThreads, bytes, stream()>>>(r);
      return;
    }
  }
  cross_entropy_kernel<T, N, false><<<blocks(r.rows), kThreads, 0, stream()>>>(r);
}

// launch(T*, N): N elements at a time where rows begin at multiples of 16 bytes, else one.
template <class Launch>
void for_type(const char* name, const CrossEntropyRows& r, const Launch& launch) {
  if (r.rows == 0) return;
  with_type(r.type, [&]<class T>(T* type) {
    if (packs<T>(r.columns, r.logits))
      launch(type, std::integral_constant<int, kPack<T>>());
    else
      launch(type, std::integral_constant<int, 1>());
  });
  check_launch(name, r.rows, r.columns);
}

}  // namespace

void gradients_cuda(const CrossEntropyRows& r) {
  for_type("gradients", r, [&]<class T, int N>(T*, std::integral_constant<int, N>) {
    gradients_kernel<T, N><<<blocks(r.rows), kThreads, 0, stream()>>>(r);
  });
}

void cross_entropy_cuda(const CrossEntropyRows& r) {
  for_type("cross_entropy", r, [&]<class T, int N>(T*, std::integral_constant<int, N>) {
    launch_cross_entropy<T, N>(r);
  });
}

}  // namespace neox
