// A block takes a row. Its logits are read once for their maximum and the sum of exponentials
// together, which each thread keeps for the part that it has seen, and once more for the gradients,
// mostly from the L2 cache.
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

template <class T, int N>
__device__ void to_gradients(T* row, int64_t columns, int64_t target, Wide<T> top, Wide<T> sum,
                             Wide<T> factor) {
  using W = Wide<T>;
  W scale = factor / sum;
  for_packs<kThreads, T, N>(row, columns, [&](int64_t i, const Held<T, N>& x) {
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
  to_gradients<T, N>(row.row, r.columns, row.target, static_cast<W*>(r.top)[blockIdx.x],
                     static_cast<W*>(r.sums)[blockIdx.x],
                     static_cast<const W*>(r.factor)[blockIdx.x]);
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads, kBlocks) cross_entropy_kernel(CrossEntropyRows r) {
  using W = Wide<T>;
  RowOf<T> row(r);
  Seen<W> seen;
  for_packs<kThreads, T, N>(row.row, r.columns,
                            [&](int64_t, const Held<T, N>& x) { seen.template add<N>(x); });
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
    to_gradients<T, N>(row.row, r.columns, row.target, top, sum,
                       static_cast<const W*>(r.factor)[blockIdx.x]);
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
    cross_entropy_kernel<T, N><<<blocks(r.rows), kThreads, 0, stream()>>>(r);
  });
}

}  // namespace neox
