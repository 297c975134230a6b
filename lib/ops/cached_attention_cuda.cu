// A block takes some keys of one group of heads and up to kQ of its queries, in rounds of kSteps
// keys for each thread, 8 elements of a key with each: those of a round are loaded while the round
// before is computed, and those of the first one before the block waits for the kernel that makes
// queries. Lanes that share keys keep a maximum of their own, so that threads meet only to join
// their parts: of lanes, of warps and, in order, of the blocks of a head. These are a cluster and
// read each other's shared memory; where a device has no clusters, the one that ends last reads the
// parts.
#include "ops/attention_parts.cuh"
#include "ops/cached_attention.h"

namespace neox {
namespace {

using namespace cuda;

constexpr int kThreads = kCacheThreads, kWarps = kThreads / 32;
constexpr int kMostD = 256, kRoundsAhead = 2;

// Of a multiprocessor's: few registers leave room for the next kernel, which begins early.
template <class T, int kQ>
constexpr int kBlocks = sizeof(T) > 2 ? 1
                        : kQ == 1     ? 3
                                      : 2;

struct Job {
  CacheRows rows;
  bool clustered;  // the blocks of a head
};

// Of a query: sums of values, the maximum of the scores, and the total of their exponentials.
template <class W>
using Part = W[kMostD + 2];

template <class T, int kQ>
struct Common {  // of a block
  using W = Wide<T>;
  W q[kQ][kMostD];                     // rotated, times the scale
  alignas(16) T k[kMostD], v[kMostD];  // of the new token
  float cos[kMostD / 2], sin[kMostD / 2];
  Part<W> warps[kWarps], whole[kQ];
  bool last;
};

// What the block works on, and this thread in it.
struct Place {
  int64_t b, group, length, first_key;
  bool has_token;                                            // in one of the block's rounds
  int first_query, queries, lanes, lane, slots, slot, keys;  // keys: of a round
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
    p.lane = tid & (p.lanes - 1);
    p.slot = tid / p.lanes;
    p.slots = kThreads / p.lanes;
    p.keys = p.slots * kSteps;
    p.length = r.lengths[p.b];
    p.first_key = int64_t{blockIdx.x} * p.keys;
    p.has_token = static_cast<unsigned>(p.length) / p.keys % gridDim.x == blockIdx.x;
    return p;
  }
  __device__ Place next_round() const {
    Place next = *this;
    next.first_key += int64_t{gridDim.x} * keys;
    return next;
  }
  __device__ int64_t key(int u) const { return first_key + u * slots + slot; }
  __device__ bool has_elements(const CacheRows& r) const { return lane * kN < r.D; }
  // In keys and values.
  __device__ int64_t row(const CacheRows& r, int64_t position) const {
    return ((b * r.groups + group) * r.capacity + position) * r.D;
  }
  __device__ int64_t head(const CacheRows& r, int query) const {
    return (b * r.groups + group) * r.queries + first_query + query;
  }
};

// The sines of the token's position, which are there before its queries are.
template <class T, int kQ>
__device__ void take_sines(const CacheRows& r, const Place& p, Common<T, kQ>& s) {
  int i = static_cast<int>(threadIdx.x);
  if (i >= r.half) return;
  s.cos[i] = r.cos[p.length * r.half + i];
  s.sin[i] = r.sin[p.length * r.half + i];
}

// Asks for the keys and values of rounds behind the first one, each by one thread.
template <class T>
__device__ void fetch_rounds_ahead(const CacheRows& r, const Place& p) {
  int round = static_cast<int>(threadIdx.x) / 2 + 1;
  int64_t first = p.first_key + int64_t{gridDim.x} * round * p.keys, more = p.length - first;
  if (round > kRoundsAhead || more <= 0) return;
  auto* from = static_cast<const T*>(threadIdx.x % 2 == 0 ? r.keys : r.values);
  auto bytes = (more < p.keys ? more : p.keys) * r.D * static_cast<int64_t>(sizeof(T));
  fetch_ahead(from + p.row(r, first), static_cast<unsigned>(bytes));
}

// Elements of the token's heads: its queries, key and value, of which a thread takes some at once.
template <class T, int kQ>
class Token {
  using W = Wide<T>;
  static constexpr int kTogether = 2;
  const CacheRows& r_;
  const Place& p_;
  Common<T, kQ>& s_;
  int D_, half_;
  W scale_;

  __device__ const T* head(int n) const {
    int64_t first = (p_.b * r_.groups + p_.group) * (r_.queries + 2), at = n / D_;
    at = at < kQ ? p_.first_query + (at < p_.queries ? at : 0) : r_.queries + at - kQ;
    return static_cast<const T*>(r_.qkv) + (first + at) * D_;
  }
  // Where the element is that is rotated together with element i, if i is.
  __device__ int other(int i) const {
    return i < half_ ? i + half_ : i < 2 * half_ ? i - half_ : i;
  }
  __device__ W turned(int i, W x, W other) const {
    if (i >= 2 * half_) return x;
    bool first = i < half_;
    int turn = first ? i : i - half_;
    return x * static_cast<W>(s_.cos[turn]) +
           (first ? -other : other) * static_cast<W>(s_.sin[turn]);
  }
  __device__ void put(int n, T value, T other) const {
    int head = n / D_, i = n % D_;
    W turn = turned(i, static_cast<W>(value), static_cast<W>(other));
    if (head < kQ) {
      s_.q[head][i] = head < p_.queries ? turn * scale_ : W(0);
      return;
    }
    // One of the blocks puts key and value into the cache.
    T x = head == kQ ? static_cast<T>(turn) : value;
    (head == kQ ? s_.k : s_.v)[i] = x;
    T* cache = static_cast<T*>(head == kQ ? r_.keys : r_.values);
    if (p_.first_query == 0) cache[p_.row(r_, p_.length) + i] = x;
  }

 public:
  __device__ Token(const CacheRows& r, const Place& p, Common<T, kQ>& s)
      : r_(r),
        p_(p),
        s_(s),
        D_(static_cast<int>(r.D)),
        half_(static_cast<int>(r.half)),
        scale_(static_cast<W>(r.scale)) {}
  __device__ void take() const {
    int count = (p_.has_token ? kQ + 2 : kQ) * D_;
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x); n < count; n += kTogether * kThreads) {
      T values[kTogether], others[kTogether];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        int m = n + u * kThreads < count ? n + u * kThreads : n;
        values[u] = head(m)[m % D_];
        others[u] = head(m)[other(m % D_)];
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u)
        if (n + u * kThreads < count) put(n + u * kThreads, values[u], others[u]);
    }
  }
};

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

// A thread's scores of a round, those of its keys the same on all lanes that share them; -inf where
// there is no key.
template <class T, int kQ>
__device__ void take_scores(const CacheRows& r, const Place& p, const Elements<T> (&k)[kSteps],
                            const Common<T, kQ>& s, Wide<T> (&scores)[kQ][kSteps]) {
  using W = Wide<T>;
#pragma unroll
  for (int g = 0; g < kQ; ++g) {
    W q[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) q[j] = p.has_elements(r) ? s.q[g][p.lane * kN + j] : W(0);
#pragma unroll
    for (int u = 0; u < kSteps; ++u) {
      scores[g][u] = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) scores[g][u] += q[j] * k[u][j];
    }
    for (int step = p.lanes / 2; step > 0; step /= 2)
#pragma unroll
      for (int u = 0; u < kSteps; ++u)
        scores[g][u] += __shfl_xor_sync(kAllLanes, scores[g][u], step);
#pragma unroll
    for (int u = 0; u < kSteps; ++u) {
      W score = scores[g][u];
      bool seen = p.key(u) <= p.length;
      if (seen && r.added && g < p.queries)
        score += static_cast<W>(static_cast<const T*>(r.added)[p.head(r, g) * r.seen + p.key(u)]);
      scores[g][u] = seen ? score : -static_cast<W>(INFINITY);
    }
  }
}

// s.whole[g] = the block's part of query g.
template <class T, int kQ>
__device__ void join_warps(const CacheRows& r, const Place& p, int g, const Partial<Wide<T>>& mine,
                           Common<T, kQ>& s) {
  using W = Wide<T>;
  int warp = static_cast<int>(threadIdx.x) / 32, i = static_cast<int>(threadIdx.x);
  int D = static_cast<int>(r.D);
  if (i % 32 < p.lanes && p.has_elements(r))
#pragma unroll
    for (int j = 0; j < kN; ++j) s.warps[warp][p.lane * kN + j] = mine.sum[j];
  if (i % 32 == 0) s.warps[warp][D] = mine.top, s.warps[warp][D + 1] = mine.total;
  __syncthreads();
  if (i < D) {
    auto all = join<W>(kWarps, D, i, [&](int k, int at) { return s.warps[k][at]; });
    s.whole[g][i] = all.sum;
    if (i == 0) s.whole[g][D] = all.top, s.whole[g][D + 1] = all.total;
  }
  __syncthreads();
}

// The result; of(k, g, i) is element i of the part of query g that block k has.
template <class T, class Of>
__device__ void join_blocks(const CacheRows& r, const Place& p, const Of& of) {
  int D = static_cast<int>(r.D);
  for (int n = static_cast<int>(threadIdx.x); n < p.queries * D; n += kThreads) {
    int g = n / D, i = n % D;
    auto all = join<Wide<T>>(static_cast<int>(gridDim.x), D, i,
                             [&](int k, int at) { return of(k, g, at); });
    static_cast<T*>(r.out)[p.head(r, g) * D + i] = static_cast<T>(all.sum / all.total);
  }
}

template <class T>
__device__ Wide<T>* part_of(const CacheRows& r, const Place& p, int g, unsigned block) {
  return static_cast<Wide<T>*>(r.partial) +
         (p.head(r, g) * static_cast<int64_t>(gridDim.x) + block) * (r.D + 2);
}

// Puts the block's parts into global memory. Whether all others are there, too.
template <class T, int kQ>
__device__ bool is_last(const CacheRows& r, const Place& p, Common<T, kQ>& s) {
  int width = static_cast<int>(r.D) + 2;
  for (int n = static_cast<int>(threadIdx.x); n < p.queries * width; n += kThreads)
    part_of<T>(r, p, n / width, blockIdx.x)[n % width] = s.whole[n / width][n % width];
  int32_t* arrived = r.arrived + p.head(r, 0);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    s.last = atomicAdd(arrived, 1) == static_cast<int>(gridDim.x) - 1;
    if (s.last) *arrived = 0;
  }
  __syncthreads();
  __threadfence();
  return s.last;
}

// The result, of what the threads have of each query.
template <class T, int kQ>
__device__ void finish(const Job& job, const Place& p, Partial<Wide<T>> (&mine)[kQ],
                       Common<T, kQ>& s) {
  const CacheRows& r = job.rows;
  using W = Wide<T>;
#pragma unroll
  for (int g = 0; g < kQ; ++g) {
    mine[g].join_lanes(p.lanes);
    join_warps<T, kQ>(r, p, g, mine[g], s);
  }
  if (gridDim.x == 1) {
    join_blocks<T>(r, p, [&](int, int g, int i) { return s.whole[g][i]; });
  } else if (job.clustered) {
    meet_cluster();  // all parts are in their blocks' memory
    if (blockIdx.x == 0)
      join_blocks<T>(r, p, [&](int k, int g, int i) -> W { return *peer_of(&s.whole[g][i], k); });
    await_cluster();  // no block has left while its memory is read
  } else if (is_last<T, kQ>(r, p, s)) {
    // Past the first level of the cache, in which there may be what lay there before.
    join_blocks<T>(r, p, [&](int k, int g, int i) {
      return __ldcg(part_of<T>(r, p, g, static_cast<unsigned>(k)) + i);
    });
  }
}

template <class T, int kQ>
__global__ void __launch_bounds__(kThreads, kBlocks<T, kQ>) attention_kernel(Job job) {
  using Mine = Common<T, kQ>;
  __shared__ Mine s;
  const CacheRows& r = job.rows;
  Place p = Place::of(r, std::integral_constant<int, kQ>());
  bool fits = p.length < r.seen;
  Elements<T> k[kSteps], v[kSteps];
  if (fits) {
    load_keys<T>(r, p, r.keys, k);
    load_keys<T>(r, p, r.values, v);
    fetch_rounds_ahead<T>(r, p);
    take_sines<T, kQ>(r, p, s);
  }
  // In this order, and in every block: whatever begins from here on finds all that the kernel
  // before has written, and may take it without waiting for this one (RowTerm::early).
  wait_for_kernel_before();
  next_kernel_may_begin();
  if (!fits) return;  // nor do the other blocks of the head have anything to do
  __syncthreads();
  Token<T, kQ>(r, p, s).take();
  __syncthreads();
  Partial<Wide<T>> mine[kQ];
#pragma unroll 1
  while (p.first_key <= p.length) {
    add_token<T>(r, p, s.k, k);
    add_token<T>(r, p, s.v, v);
    Wide<T> scores[kQ][kSteps];
    take_scores<T, kQ>(r, p, k, s, scores);
    p = p.next_round();
    load_keys<T>(r, p, r.keys, k);
#pragma unroll
    for (int g = 0; g < kQ; ++g) mine[g].template add<T>(scores[g], v);
    load_keys<T>(r, p, r.values, v);
  }
  finish<T, kQ>(job, p, mine, s);
}

// Blocks of a head: no more than there are rounds, and of all heads two on each multiprocessor.
int64_t blocks_of_head(const CacheRows& r, int64_t heads, bool clusters) {
  int64_t n = 1, most = clusters ? kMostClusterBlocks : r.splits();
  while (n < r.splits() && 2 * n <= most && 2 * n * heads <= 2 * multiprocessors()) n *= 2;
  return n;
}

}  // namespace

void cached_attention_cuda(const CacheRows& r) {
  with_type(r.type, [&]<class T>(T*) {
    auto launch = [&]<int kQ>(std::integral_constant<int, kQ>) {
      int64_t heads = r.groups * ((r.queries + kQ - 1) / kQ);
      Job job{r, has_clusters()};
      unsigned each = blocks(blocks_of_head(r, heads * r.B, job.clustered));
      dim3 grid(each, static_cast<unsigned>(heads), static_cast<unsigned>(r.B));
      launch_early(attention_kernel<T, kQ>,
                   {.grid = grid, .threads = kThreads, .cluster = job.clustered ? each : 1}, job);
    };
    if (r.queries == 1)
      launch(std::integral_constant<int, 1>());
    else
      launch(std::integral_constant<int, 4>());
  });
  check_launch("attention to a cache", r.B * r.groups * r.queries, r.D);
}

}  // namespace neox
