// A block takes a row, which the product before has left in the second level of the cache: one
// multiprocessor reads 100 KB of it in a microsecond, less than several blocks would take to agree.
// Each thread knows its greatest logit and the pack that had it first; where in the pack it is, is
// looked up by those that have the row's greatest one.
#include "ops/cuda_kernels.cuh"
#include "ops/next_tokens.h"

namespace neox {
namespace {

using namespace cuda;

constexpr int kThreads = 1024;
constexpr float kInfinity = static_cast<float>(INFINITY), kNone = -kInfinity;

struct Greatest {
  float value = kNone;
  int at = 0;           // the first column of its pack
  bool numbers = true;  // all are

  template <int N, class Logits>
  __device__ void take(const Logits& logits, int column) {
    float before = value;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      auto logit = static_cast<float>(logits[j]);
      numbers = numbers && logit == logit;
      value = fmaxf(value, logit);
    }
    if (value != before) at = column;
  }
};

// Of this thread's part of the row's first n.
template <class T, int N>
__device__ Greatest greatest_of(const T* row, int n) {
  Greatest found;
  int whole = n / N * N, rest = whole + static_cast<int>(threadIdx.x);
  T last = row[rest < n ? rest : 0];  // behind the whole packs
  for_packs<kThreads, T, N, N == 1 ? 8 : 4>(
      row, whole, [&](int i, const Held<T, N>& x) { found.take<N>(x, i); });
  if (rest < n) found.take<1>(&last, rest);
  return found;
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) tokens_kernel(TokenRows r) {
  int b = static_cast<int>(blockIdx.x), n = static_cast<int>(r.vocab);
  const T* row = static_cast<const T*>(r.logits) + b * r.columns;
  bool moves = r.lengths && threadIdx.x == 0;
  wait_for_kernel_before();
  int64_t length = moves ? r.lengths[b] : 0, more = moves ? r.more[b] : 0;
  Greatest mine = greatest_of<T, N>(row, n);
  float greatest = over_block(mine.numbers ? mine.value : kInfinity, Larger(), kNone);
  int left = 0;  // columns from the first such one on
  if (mine.value == greatest) {
#pragma unroll
    for (int j = N - 1; j >= 0; --j) {
      int column = mine.at + j < n ? mine.at + j : n - 1;
      if (static_cast<float>(row[column]) == greatest) left = n - column;
    }
  }
  left = over_block(left, Larger(), 0);
  if (threadIdx.x > 0) return;
  r.tokens[b] = greatest > kNone && greatest < kInfinity ? n - left : -1;
  if (moves) r.lengths[b] = length + more;
}

}  // namespace

void next_tokens_cuda(const TokenRows& r) {
  if (r.B == 0) return;
  with_type(r.type, [&]<class T>(T*) {
    bool packed = packs<T>(r.columns, r.logits);
    launch_early(packed ? tokens_kernel<T, kPack<T>> : tokens_kernel<T, 1>, {blocks(r.B), kThreads},
                 r);
  });
  check_launch("the choice of tokens", r.B, r.columns);
}

}  // namespace neox
