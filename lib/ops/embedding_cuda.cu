// Backward, a thread takes some columns of one piece of the sorted ids. An id that lies in one
// piece goes to the table from there; the sums of others wait at the piece's edges, and are added
// by the piece in which the id begins. So each row of the table is written once, and sums have one
// order.
#include "ops/cuda_kernels.cuh"
#include "ops/embedding.h"

namespace neox {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

template <class T, int N>
__global__ void __launch_bounds__(kThreads) rows_kernel(EmbeddingRows r) {
  next_kernel_may_begin();
  int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N,
          row = r.rows[blockIdx.x] - r.first;
  if (column >= r.columns) return;
  Pack<T, N> x;
  if (row >= 0 && row < r.table_rows) {
    x = load_pack<T, N>(static_cast<const T*>(r.table) + row * r.columns + column);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) x.at[j] = static_cast<T>(0.0f);
  }
  store_pack<T, N>(static_cast<T*>(r.out) + blockIdx.x * r.columns + column, x);
}

template <class W, int N>
__device__ void store(W* to, const W (&x)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) to[j] = x[j];
}

// To a row of the table, if it has one; in accesses of up to 16 bytes.
template <class W, int N>
__device__ void add(const EmbeddingGradient& g, int64_t row, int64_t column, const W (&x)[N]) {
  row -= g.first;
  if (row < 0 || row >= g.table_rows) return;
  W* to = static_cast<W*>(g.table) + row * g.columns + column;
  constexpr int M = N < kPack<W> ? N : kPack<W>;
#pragma unroll
  for (int j = 0; j < N; j += M) {
    auto there = load_pack<W, M>(to + j);
#pragma unroll
    for (int k = 0; k < M; ++k) there.at[k] += x[j + k];
    store_pack<W, M>(to + j, there);
  }
}

// The id at the end of a piece, or at its beginning, is another piece's too.
__device__ bool goes_on(const EmbeddingGradient& g, int64_t last) {
  return last + 1 < g.n && g.ids[last + 1] == g.ids[last];
}
__device__ bool came_from_before(const EmbeddingGradient& g, int64_t first, int32_t id) {
  return first > 0 && g.ids[first - 1] == id;
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) pieces_kernel(EmbeddingGradient g) {
  using W = Wide<T>;
  int64_t piece = blockIdx.x, first = piece * kEmbeddingPiece,
          column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= g.columns) return;
  Pack<T, N> rows[kEmbeddingPiece];
#pragma unroll
  for (int i = 0; i < kEmbeddingPiece; ++i) {  // all of them are under way before the first is used
    int64_t row = g.order[first + i < g.n ? first + i : g.n - 1];
    rows[i] = load_pack<T, N>(static_cast<const T*>(g.dy) + row * g.columns + column);
  }
  auto* edges = static_cast<W*>(g.edges) + column;
  W sum[N] = {};
#pragma unroll
  for (int i = 0; i < kEmbeddingPiece; ++i) {
    int64_t at = first + i;
    if (at >= g.n) break;
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += static_cast<W>(rows[i].at[j]);
    int32_t id = g.ids[at];
    bool same = goes_on(g, at);
    if (same && i + 1 < kEmbeddingPiece) continue;
    if (came_from_before(g, first, id))
      store<W, N>(edges + 2 * piece * g.columns, sum);
    else if (same)
      store<W, N>(edges + (2 * piece + 1) * g.columns, sum);
    else
      add<W, N>(g, id, column, sum);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = 0;
  }
}

// Behind the last of the id at `at`.
__device__ int64_t end_of_run(const EmbeddingGradient& g, int64_t at) {
  int64_t in = at, out = g.n;
  while (out - in > 1) {
    int64_t middle = (in + out) / 2;
    (g.ids[middle] == g.ids[at] ? in : out) = middle;
  }
  return out;
}

// For the id with which a piece ends, where it begins there and goes on.
template <class W>
__global__ void __launch_bounds__(kThreads) edges_kernel(EmbeddingGradient g) {
  int64_t piece = blockIdx.x, first = piece * kEmbeddingPiece, last = first + kEmbeddingPiece - 1,
          column = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (column >= g.columns || !goes_on(g, last)) return;
  int32_t id = g.ids[last];
  if (came_from_before(g, first, id)) return;
  const W* edges = static_cast<const W*>(g.edges) + column;
  W sum[1] = {edges[(2 * piece + 1) * g.columns]};
  int64_t end = end_of_run(g, last);
#pragma unroll 4
  for (int64_t p = piece + 1; p * kEmbeddingPiece < end; ++p) sum[0] += edges[2 * p * g.columns];
  add<W, 1>(g, id, column, sum);
}

unsigned threads_for(int64_t columns) {
  return static_cast<unsigned>(std::min<int64_t>((columns + 31) / 32 * 32, kThreads));
}

dim3 grid_of(int64_t pieces, int64_t columns) {
  int64_t threads = threads_for(columns);
  return dim3(blocks(pieces), blocks((columns + threads - 1) / threads));
}

template <class T, int N>
void launch(const EmbeddingGradient& g, int64_t pieces) {
  int64_t packs_of_row = (g.columns + N - 1) / N;
  pieces_kernel<T, N><<<grid_of(pieces, packs_of_row), threads_for(packs_of_row), 0, stream()>>>(g);
  edges_kernel<Wide<T>><<<grid_of(pieces, g.columns), threads_for(g.columns), 0, stream()>>>(g);
}

template <class T, int N>
void launch(const EmbeddingRows& r) {
  int64_t packs_of_row = (r.columns + N - 1) / N;
  rows_kernel<T, N><<<grid_of(r.n, packs_of_row), threads_for(packs_of_row), 0, stream()>>>(r);
}

}  // namespace

void embedding_rows_cuda(const EmbeddingRows& r) {
  if (r.n == 0 || r.columns == 0) return;
  with_type(r.type, [&]<class T>(T*) {
    if (packs<T>(r.columns, r.table, r.out))
      launch<T, kPack<T>>(r);
    else
      launch<T, 1>(r);
  });
  check_launch("an embedding", r.n, r.columns);
}

void embedding_gradient_cuda(const EmbeddingGradient& g) {
  int64_t pieces = (g.n + kEmbeddingPiece - 1) / kEmbeddingPiece;
  if (pieces == 0 || g.columns == 0) return;
  with_type(g.type, [&]<class T>(T*) {
    if (packs<T>(g.columns, g.dy, g.table, g.edges))
      launch<T, kPack<T>>(g, pieces);
    else
      launch<T, 1>(g, pieces);
  });
  check_launch("the gradient of an embedding", g.n, g.columns);
}

}  // namespace neox
