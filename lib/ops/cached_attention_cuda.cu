// A block takes some keys of one group of heads and up to kQ of its queries. All of its keys and
// values are loaded at once, before it waits for the kernel that makes the queries; 8 elements of a
// key lie with one thread. The parts of a row are summed, in order, by the block that ends last.
#include "ops/cached_attention.h"
#include "ops/cuda_kernels.cuh"

namespace neox {
namespace {

using namespace cuda;

constexpr int kThreads = kCacheThreads, kWarps = kThreads / 32, kSteps = kCacheSteps, kN = 8;
constexpr int kMostKeys = kThreads / 4 * kSteps, kMostD = 256;

// Of a multiprocessor's: few registers leave room for the next kernel, which begins early.
template <class T, int kQ>
constexpr int kBlocks = sizeof(T) > 2 ? 1
                        : kQ == 1     ? 3
                                      : 2;

template <class T>
using Elements = Words<T, kN>;

template <class T, int kQ>
struct Common {  // of a block
  using W = Wide<T>;
  W q[kQ][kMostD];                     // rotated, times 1 / sqrt(D)
  alignas(16) T k[kMostD], v[kMostD];  // of the new token
  W scores[kQ][kMostKeys];             // then their exponentials
  W top[kQ], total[kQ];
  W sums[kWarps][kMostD];
  bool last;
};

// What the block works on, and this thread in it.
struct Place {
  int64_t b, group, length, first_key;
  int first_query, queries, lanes, lane, slots, slot, keys;
  template <int kQ>
  static __device__ Place of(const CacheRows& r, std::integral_constant<int, kQ>) {
    Place p;
    int chunks = (static_cast<int>(r.queries) + kQ - 1) / kQ, tid = static_cast<int>(threadIdx.x);
    p.b = blockIdx.z;
    p.group = static_cast<int>(blockIdx.y) / chunks;
    p.first_query = static_cast<int>(blockIdx.y) % chunks * kQ;
    int more = static_cast<int>(r.queries) - p.first_query;
    p.queries = more < kQ ? more : kQ;
    p.lanes = 4;
    while (kN * p.lanes < r.D) p.lanes *= 2;
    p.lane = tid % p.lanes;
    p.slot = tid / p.lanes;
    p.slots = kThreads / p.lanes;
    p.keys = p.slots * kSteps;
    p.length = r.lengths[p.b];
    p.first_key = int64_t{blockIdx.x} * p.keys;
    return p;
  }
  __device__ int64_t key(int u) const { return first_key + u * slots + slot; }
  __device__ bool has_elements(const CacheRows& r) const { return lane * kN < r.D; }
  __device__ bool has_token() const { return length < first_key + keys; }
  // In keys and values.
  __device__ int64_t row(const CacheRows& r, int64_t position) const {
    return ((b * r.groups + group) * r.capacity + position) * r.D;
  }
  __device__ int64_t head(const CacheRows& r, int query) const {
    return (b * r.groups + group) * r.queries + first_query + query;
  }
};

// Element i of a head at the token's position.
template <class T>
__device__ Wide<T> turned(const CacheRows& r, const T* head, int i, int64_t position) {
  using W = Wide<T>;
  int half = static_cast<int>(r.half);
  W x = static_cast<W>(head[i]);
  if (i >= 2 * half) return x;
  bool first = i < half;
  int64_t turn = position * half + (first ? i : i - half);
  W other = static_cast<W>(head[first ? i + half : i - half]), sine = r.sin[turn];
  return x * static_cast<W>(r.cos[turn]) + (first ? -other : other) * sine;
}

// Queries, and in the token's block its key and value, which one of the blocks puts into the cache.
template <class T, int kQ>
__device__ void take_token(const CacheRows& r, const Place& p, Common<T, kQ>& s) {
  using W = Wide<T>;
  int D = static_cast<int>(r.D), heads = p.has_token() ? kQ + 2 : kQ;
  int64_t at = (p.b * r.groups + p.group) * (r.queries + 2);
  const T* qkv = static_cast<const T*>(r.qkv);
  W scale = 1 / sqrt(static_cast<W>(D));
  for (int n = static_cast<int>(threadIdx.x); n < heads * D; n += kThreads) {
    int head = n / D, i = n % D;
    if (head < kQ) {
      const T* from = qkv + (at + p.first_query + head) * D;
      s.q[head][i] = head < p.queries ? turned(r, from, i, p.length) * scale : W(0);
      continue;
    }
    bool is_key = head == kQ;
    const T* from = qkv + (at + r.queries + (is_key ? 0 : 1)) * D;
    T x = is_key ? static_cast<T>(turned(r, from, i, p.length)) : from[i];
    (is_key ? s.k : s.v)[i] = x;
    T* cache = static_cast<T*>(is_key ? r.keys : r.values);
    if (p.first_query == 0) cache[p.row(r, p.length) + i] = x;
  }
}

template <class T>
__device__ void load_keys(const CacheRows& r, const Place& p, const void* from,
                          Elements<T> (&x)[kSteps]) {
#pragma unroll
  for (int u = 0; u < kSteps; ++u) {
    x[u] = {};
    if (p.key(u) < p.length && p.has_elements(r))
      x[u] = load_words<T, kN>(static_cast<const T*>(from) + p.row(r, p.key(u)) + p.lane * kN);
  }
}

template <class T>
__device__ void add_token(const CacheRows& r, const Place& p, const T* token,
                          Elements<T> (&x)[kSteps]) {
#pragma unroll
  for (int u = 0; u < kSteps; ++u)
    if (p.key(u) == p.length && p.has_elements(r)) x[u] = load_words<T, kN>(token + p.lane * kN);
}

template <class T, int kQ>
__device__ void take_scores(const CacheRows& r, const Place& p, const Elements<T> (&k)[kSteps],
                            Common<T, kQ>& s) {
  using W = Wide<T>;
#pragma unroll
  for (int g = 0; g < kQ; ++g) {
    W q[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) q[j] = p.has_elements(r) ? s.q[g][p.lane * kN + j] : W(0);
#pragma unroll
    for (int u = 0; u < kSteps; ++u) {
      W score = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) score += q[j] * k[u][j];
      for (int step = p.lanes / 2; step > 0; step /= 2)
        score += __shfl_xor_sync(kAllLanes, score, step);
      if (p.lane != 0) continue;
      bool seen = p.key(u) <= p.length;
      if (seen && r.added && g < p.queries)
        score += static_cast<W>(static_cast<const T*>(r.added)[p.head(r, g) * r.seen + p.key(u)]);
      s.scores[g][u * p.slots + p.slot] = seen ? score : -static_cast<W>(INFINITY);
    }
  }
}

// A warp for each query.
template <class T, int kQ>
__device__ void take_exponentials(const Place& p, Common<T, kQ>& s) {
  using W = Wide<T>;
  int g = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (g >= kQ) return;
  W top = -static_cast<W>(INFINITY), total = 0;
  for (int i = lane; i < p.keys; i += 32) top = Larger()(s.scores[g][i], top);
  top = over_warp(top, Larger());
  bool any = top > -static_cast<W>(INFINITY);
  for (int i = lane; i < p.keys; i += 32)
    total += s.scores[g][i] = any ? exp_of(s.scores[g][i] - top) : W(0);
  total = over_warp(total, Add());
  if (lane == 0) s.top[g] = top, s.total[g] = total;
}

template <class T>
__device__ Wide<T>* part_of(const CacheRows& r, const Place& p, int g, int64_t split) {
  return static_cast<Wide<T>*>(r.partial) +
         (p.head(r, g) * static_cast<int64_t>(gridDim.x) + split) * (r.D + 2);
}

template <class T, int kQ>
__device__ void sum_values(const CacheRows& r, const Place& p, const Elements<T> (&v)[kSteps],
                           Common<T, kQ>& s) {
  using W = Wide<T>;
  int warp = static_cast<int>(threadIdx.x) / 32, i = static_cast<int>(threadIdx.x);
  for (int g = 0; g < p.queries; ++g) {
    W sum[kN] = {};
#pragma unroll
    for (int u = 0; u < kSteps; ++u) {
      W weight = s.scores[g][u * p.slots + p.slot];
#pragma unroll
      for (int j = 0; j < kN; ++j) sum[j] += weight * v[u][j];
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      for (int step = p.lanes; step < 32; step *= 2)
        sum[j] += __shfl_xor_sync(kAllLanes, sum[j], step);
      if (static_cast<int>(threadIdx.x) % 32 < p.lanes) s.sums[warp][p.lane * kN + j] = sum[j];
    }
    __syncthreads();
    W* part = part_of<T>(r, p, g, blockIdx.x);
    if (i < r.D) {
      W whole = 0;
      for (int w = 0; w < kWarps; ++w) whole += s.sums[w][i];
      part[i] = whole;
    }
    if (i == 0) part[r.D] = s.top[g], part[r.D + 1] = s.total[g];
    __syncthreads();
  }
}

// Whether all other parts of these queries are in memory.
template <class T, int kQ>
__device__ bool is_last(const CacheRows& r, const Place& p, Common<T, kQ>& s) {
  int32_t* arrived = r.arrived + p.head(r, 0);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    s.last = atomicAdd(arrived, 1) == p.length / p.keys;
    if (s.last) *arrived = 0;
  }
  __syncthreads();
  __threadfence();
  return s.last;
}

// Past the first level of the cache, in which there may be what lay there before. The loads of some
// parts are under way together.
template <class T>
__device__ void join_parts(const CacheRows& r, const Place& p) {
  using W = Wide<T>;
  constexpr int kTogether = 8;
  constexpr W kNone = -static_cast<W>(INFINITY);
  int parts = static_cast<int>(p.length / p.keys) + 1, D = static_cast<int>(r.D);
  for (int n = static_cast<int>(threadIdx.x); n < p.queries * D; n += kThreads) {
    int g = n / D, i = n % D;
    const W* part = part_of<T>(r, p, g, 0);
    W top = kNone, sum = 0, total = 0;
    for (int k = 0; k < parts; k += kTogether) {
      W tops[kTogether], totals[kTogether], sums[kTogether], next = top;
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        bool any = k + u < parts;
        const W* at = part + (any ? k + u : 0) * (D + 2);
        sums[u] = __ldcg(at + i);
        tops[u] = any ? __ldcg(at + D) : kNone;
        totals[u] = __ldcg(at + D + 1);
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u) next = Larger()(tops[u], next);
      if (next == kNone) continue;
      W kept = exp_of(top - next);
      sum *= kept, total *= kept, top = next;
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        W weight = exp_of(tops[u] - top);
        sum += weight * sums[u], total += weight * totals[u];
      }
    }
    static_cast<T*>(r.out)[p.head(r, g) * r.D + i] = static_cast<T>(sum / total);
  }
}

template <class T, int kQ>
__global__ void __launch_bounds__(kThreads, kBlocks<T, kQ>) attention_kernel(CacheRows r) {
  using Mine = Common<T, kQ>;
  __shared__ Mine s;
  Place p = Place::of(r, std::integral_constant<int, kQ>());
  next_kernel_may_begin();
  if (p.first_key > p.length || p.length >= r.seen) return;
  Elements<T> k[kSteps], v[kSteps];
  load_keys<T>(r, p, r.keys, k);
  load_keys<T>(r, p, r.values, v);
  wait_for_kernel_before();
  take_token<T, kQ>(r, p, s);
  __syncthreads();
  add_token<T>(r, p, s.k, k);
  add_token<T>(r, p, s.v, v);
  take_scores<T, kQ>(r, p, k, s);
  __syncthreads();
  take_exponentials<T, kQ>(p, s);
  __syncthreads();
  sum_values<T, kQ>(r, p, v, s);
  if (is_last<T, kQ>(r, p, s)) join_parts<T>(r, p);
}

}  // namespace

void cached_attention_cuda(const CacheRows& r) {
  with_type(r.type, [&]<class T>(T*) {
    auto launch = [&]<int kQ>(std::integral_constant<int, kQ>) {
      auto heads = static_cast<unsigned>(r.groups * ((r.queries + kQ - 1) / kQ));
      dim3 grid(blocks(r.splits()), heads, static_cast<unsigned>(r.B));
      launch_early(attention_kernel<T, kQ>, {grid, kThreads}, r);
    };
    if (r.queries == 1)
      launch(std::integral_constant<int, 1>());
    else
      launch(std::integral_constant<int, 4>());
  });
  check_launch("attention to a cache", r.B * r.groups * r.queries, r.D);
}

}  // namespace neox
