// Attention to a part of the keys: what lanes, warps and blocks know of it, and how it is joined.
#pragma once
#include "ops/cached_attention.h"
#include "ops/decode_kernels.cuh"

namespace neox::cuda {

// Keys of a thread in a round, and its elements of each.
constexpr int kSteps = kCacheSteps, kN = 8;

template <class T>
using Elements = Words<T, kN>;

// exp(score - top); 0 where there is no score.
template <class W>
__device__ W weight_of(W score, W top) {
  return score > -static_cast<W>(INFINITY) ? exp_of(score - top) : W(0);
}

// What lanes that share keys know of a query: this lane's elements of the sum, and the rest.
template <class W>
struct Partial {
  W sum[kN] = {}, top = -static_cast<W>(INFINITY), total = 0;

  template <class T>
  __device__ void add(const W (&scores)[kSteps], const Elements<T> (&v)[kSteps]) {
    W before = top;
#pragma unroll
    for (int u = 0; u < kSteps; ++u) top = Larger()(scores[u], top);
    W kept = weight_of(before, top);
    total *= kept;
#pragma unroll
    for (int j = 0; j < kN; ++j) sum[j] *= kept;
#pragma unroll
    for (int u = 0; u < kSteps; ++u) {
      W weight = weight_of(scores[u], top);
      total += weight;
#pragma unroll
      for (int j = 0; j < kN; ++j) sum[j] += weight * v[u][j];
    }
  }
  // The same on all lanes that have the same elements.
  __device__ void join_lanes(int lanes) {
    W before = top;
    for (int step = lanes; step < 32; step *= 2)
      top = Larger()(__shfl_xor_sync(kAllLanes, top, step), top);
    W kept = weight_of(before, top);
    total *= kept;
#pragma unroll
    for (int j = 0; j < kN; ++j) sum[j] *= kept;
    for (int step = lanes; step < 32; step *= 2) {
      total += __shfl_xor_sync(kAllLanes, total, step);
#pragma unroll
      for (int j = 0; j < kN; ++j) sum[j] += __shfl_xor_sync(kAllLanes, sum[j], step);
    }
  }
};

template <class W>
struct Joined {
  W sum = 0, top = -static_cast<W>(INFINITY), total = 0;
};

// Element i of so many parts, in order; of(k, i) is element i of part k. The loads of some parts
// are under way together.
template <class W, class Of>
__device__ Joined<W> join(int parts, int D, int i, const Of& of) {
  constexpr int kTogether = 8;
  constexpr W kNone = -static_cast<W>(INFINITY);
  Joined<W> all;
#pragma unroll 1
  for (int k = 0; k < parts; k += kTogether) {
    W sums[kTogether], tops[kTogether], totals[kTogether], before = all.top;
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      int from = k + u < parts ? k + u : 0;
      sums[u] = of(from, i);
      tops[u] = k + u < parts ? of(from, D) : kNone;
      totals[u] = of(from, D + 1);
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) all.top = Larger()(tops[u], all.top);
    W kept = weight_of(before, all.top);
    all.sum *= kept, all.total *= kept;
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      W weight = weight_of(tops[u], all.top);
      all.sum += weight * sums[u], all.total += weight * totals[u];
    }
  }
  return all;
}

}  // namespace neox::cuda
