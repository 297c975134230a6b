// A block takes a row. Its logits are read once for their maximum and the sum of exponentials
// together, which each thread keeps for the part that it has seen, and once more for the gradients,
// mostly from the L2 cache.
#include "ops/cross_entropy.h"
#include "ops/cuda_kernels.cuh"

namespace neox {
namespace {

using namespace cuda;

constexpr int kThreads = 512;

// The maximum of what a thread has seen, and the sum of exp(x - top).
template <class W>
struct Seen {
  W top = -INFINITY, sum = 0;
  __device__ void add(W x) {
    if (x > top) {
      sum = sum * exp_of(top - x);
      top = x;
    }
    sum += x == top ? W(1) : exp_of(x - top);  // both may be -inf
  }
};

// Calls work(index, N elements) over the row, where N divides the columns.
template <class T, int N, class Work>
__device__ void for_packs(const T* row, int64_t columns, const Work& work) {
  for (int64_t i = int64_t{threadIdx.x} * N; i < columns; i += int64_t{kThreads} * N)
    work(i, load_pack<T, N>(row + i));
}

template <class T, int N>
__device__ Wide<T> max_of(const T* row, int64_t columns) {
  using W = Wide<T>;
  W top = -INFINITY;
  for_packs<T, N>(row, columns, [&](int64_t, const Pack<T, N>& x) {
#pragma unroll
    for (int j = 0; j < N; ++j) top = Larger()(top, static_cast<W>(x.at[j]));
  });
  return over_block(top, Larger(), static_cast<W>(-INFINITY));
}

template <class T, int N>
__device__ Wide<T> exp_sum_of(const T* row, int64_t columns, Wide<T> top) {
  using W = Wide<T>;
  W sum = 0;
  for_packs<T, N>(row, columns, [&](int64_t, const Pack<T, N>& x) {
#pragma unroll
    for (int j = 0; j < N; ++j) sum += exp_of(static_cast<W>(x.at[j]) - top);
  });
  return over_block(sum, Add(), W(0));
}

template <class T, int N>
__device__ void to_gradients(T* row, int64_t columns, int64_t target, Wide<T> top, Wide<T> sum,
                             Wide<T> factor) {
  using W = Wide<T>;
  W scale = factor / sum;
  for_packs<T, N>(row, columns, [&](int64_t i, Pack<T, N> x) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      W p = exp_of(static_cast<W>(x.at[j]) - top) * scale;
      x.at[j] = static_cast<T>(i + j == target ? p - factor : p);
    }
    store_pack<T, N>(row + i, x);
  });
}

template <class T>
struct RowOf {
  T* row;
  int64_t target;  // a column, or outside
  __device__ explicit RowOf(const CrossEntropyRows& r)
      : row(static_cast<T*>(r.logits) + blockIdx.x * r.columns),
        target(r.target ? r.target[blockIdx.x] - r.first : -1) {}
  __device__ Wide<T> at_target(const CrossEntropyRows& r, Wide<T> top) const {
    return target >= 0 && target < r.columns ? static_cast<Wide<T>>(row[target]) - top : 0;
  }
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads) row_max_kernel(CrossEntropyRows r) {
  Wide<T> top = max_of<T, N>(RowOf<T>(r).row, r.columns);
  if (threadIdx.x == 0) static_cast<Wide<T>*>(r.top)[blockIdx.x] = top;
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) exp_sums_kernel(CrossEntropyRows r) {
  RowOf<T> row(r);
  Wide<T> top = static_cast<Wide<T>*>(r.top)[blockIdx.x];
  Wide<T> sum = exp_sum_of<T, N>(row.row, r.columns, top);
  if (threadIdx.x != 0) return;
  auto* sums = static_cast<Wide<T>*>(r.sums);
  sums[blockIdx.x] = sum;
  sums[r.rows + blockIdx.x] = row.at_target(r, top);
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) gradients_kernel(CrossEntropyRows r) {
  using W = Wide<T>;
  RowOf<T> row(r);
  to_gradients<T, N>(row.row, r.columns, row.target, static_cast<W*>(r.top)[blockIdx.x],
                     static_cast<W*>(r.sums)[blockIdx.x],
                     static_cast<const W*>(r.factor)[blockIdx.x]);
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) cross_entropy_kernel(CrossEntropyRows r) {
  using W = Wide<T>;
  RowOf<T> row(r);
  Seen<W> seen;
  for_packs<T, N>(row.row, r.columns, [&](int64_t, const Pack<T, N>& x) {
#pragma unroll
    for (int j = 0; j < N; ++j) seen.add(static_cast<W>(x.at[j]));
  });
  W top = over_block(seen.top, Larger(), static_cast<W>(-INFINITY));
  W mine = seen.sum == 0 ? 0 : seen.sum * exp_of(seen.top - top);  // not a number stays so
  W sum = over_block(mine, Add(), W(0));
  if (threadIdx.x == 0) {
    auto* sums = static_cast<W*>(r.sums);
    static_cast<W*>(r.top)[blockIdx.x] = top;
    sums[blockIdx.x] = sum;
    sums[r.rows + blockIdx.x] = row.at_target(r, top);
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

void row_max_cuda(const CrossEntropyRows& r) {
  for_type("row_max", r, [&]<class T, int N>(T*, std::integral_constant<int, N>) {
    row_max_kernel<T, N><<<blocks(r.rows), kThreads, 0, stream()>>>(r);
  });
}

void exp_sums_cuda(const CrossEntropyRows& r) {
  for_type("exp_sums", r, [&]<class T, int N>(T*, std::integral_constant<int, N>) {
    exp_sums_kernel<T, N><<<blocks(r.rows), kThreads, 0, stream()>>>(r);
  });
}

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
