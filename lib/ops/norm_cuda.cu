// A row is kept in registers between its statistics and its results: a warp takes one of up to 4
// packs a lane, else a block does. Backward, a block takes as many rows at once as have room in it;
// each thread keeps the same columns for all of its rows, whose sums leave the block once, and has
// the next row on the way while it computes one.
#include "ops/cuda_kernels.cuh"
#include "ops/norm.h"

namespace neox {
namespace {

using namespace cuda;

// Lanes: 32, a warp for a row and four rows to a block, or the threads of a block.
template <int Lanes, class W>
__device__ W over_row(W x) {
  if constexpr (Lanes == 32)
    return over_warp(x, Add());
  else
    return over_block(x, Add(), W(0));
}

// What a lane holds of one row's pack.
template <class T, int N>
struct Summands {
  Held<T, N> x, added, added2, bias;
  __device__ void load(const NormRows& r, int64_t row, int64_t i) {
    int64_t at = row * r.columns + i;
    x = load_held<T, N>(static_cast<const T*>(r.x) + at);
    if (r.added) added = load_held<T, N>(static_cast<const T*>(r.added) + at);
    if (r.added2) added2 = load_held<T, N>(static_cast<const T*>(r.added2) + at);
    if (r.bias) bias = load_held<T, N>(static_cast<const T*>(r.bias) + i);
  }
  // Rounded as where they are added one after the other.
  __device__ Pack<T, N> sum(const NormRows& r) const {
    using W = Wide<T>;
    Pack<T, N> y;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      W more = r.added ? added[j] : W(0);
      if (r.added2) more = static_cast<W>(static_cast<T>(more + added2[j]));
      if (r.bias) more += bias[j];
      more = static_cast<W>(static_cast<T>(more));
      y.at[j] = static_cast<T>(r.sum ? x[j] + more : x[j]);
    }
    return y;
  }
};

// The column at which pack k of this lane begins.
template <int N, int Lanes>
__device__ int64_t column_of(int k) {
  return int64_t{k * Lanes + static_cast<int>(threadIdx.x) % Lanes} * N;
}

// x, what this lane holds of a row whose sum it has a part of, less its mean and by its scale,
// which are written.
template <class T, int N, int Packs, int Lanes>
__device__ void normalize(const NormRows& r, int64_t row, Wide<T> part, Wide<T> (&x)[Packs][N]) {
  using W = Wide<T>;
  W C = r.columns, mean = 0, squares = 0;
  if (r.options.kind == Norm::kLayerNorm) mean = over_row<Lanes>(part) / C;
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      x[k][j] -= mean;
      if (column_of<N, Lanes>(k) < r.columns) squares += x[k][j] * x[k][j];
    }
  }
  W scale = 1 / sqrt(over_row<Lanes>(squares) / C + static_cast<W>(r.options.eps));
  if (threadIdx.x % Lanes == 0) {
    static_cast<W*>(r.mean)[row] = mean;
    static_cast<W*>(r.scale)[row] = scale;
  }
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) x[k][j] *= scale;
  }
}

template <class T, int N, int Packs, int Lanes>
__device__ void write_norm(const NormRows& r, int n, int64_t row, const Wide<T> (&x)[Packs][N]) {
  using W = Wide<T>;
  auto *weight = static_cast<const T*>(r.weight[n]), *offset = static_cast<const T*>(r.offset[n]);
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
    int64_t i = column_of<N, Lanes>(k);
    if (i >= r.columns) break;
    Pack<T, N> w = load_pack<T, N>(weight + i), b, y;
    if (offset) b = load_pack<T, N>(offset + i);
#pragma unroll
    for (int j = 0; j < N; ++j)
      y.at[j] = static_cast<T>(x[k][j] * static_cast<W>(w.at[j]) +
                               (offset ? static_cast<W>(b.at[j]) : W(0)));
    store_pack<T, N>(static_cast<T*>(r.out[n]) + row * r.columns + i, y);
  }
}

template <class T, int N, int Packs, int Lanes>
__global__ void __launch_bounds__(Lanes == 32 ? 128 : Lanes) norm_kernel(NormRows r) {
  using W = Wide<T>;
  int64_t row = Lanes == 32 ? int64_t{blockIdx.x} * 4 + threadIdx.x / 32 : blockIdx.x;
  if (row >= r.rows) return;  // a whole warp of four
  W x[Packs][N], total = 0;
  Summands<T, N> held[Packs] = {};
#pragma unroll
  for (int k = 0; k < Packs; ++k)  // all are under way before the first is used
    if (int64_t i = column_of<N, Lanes>(k); i < r.columns) held[k].load(r, row, i);
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
    Pack<T, N> sum = held[k].sum(r);
    if (int64_t i = column_of<N, Lanes>(k); r.sum && i < r.columns)
      store_pack<T, N>(static_cast<T*>(r.sum) + row * r.columns + i, sum);
#pragma unroll
    for (int j = 0; j < N; ++j) total += x[k][j] = sum[j];
  }
  if (r.norms == 0) return;
  normalize<T, N, Packs, Lanes>(r, row, total, x);
  for (int n = 0; n < r.norms; ++n) write_norm<T, N, Packs, Lanes>(r, n, row, x);
}

constexpr int kMostThreads = 512, kMostColumns = kMostColumnsOnGpus;

// What a thread holds of one row; zeros behind the last one.
template <class T, int N, int Packs, int Norms>
struct GradientRow {
  Held<T, N> sum[Packs], dsum[Packs], dout[Norms][Packs];
  Wide<T> mean, scale;

  __device__ void load(const NormGradientRows& r, int64_t row, int lane, int lanes) {
    bool exists = row < r.rows;
    mean = exists ? static_cast<const Wide<T>*>(r.mean)[row] : 0;
    scale = exists ? static_cast<const Wide<T>*>(r.scale)[row] : 0;
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      int64_t column = int64_t{k * lanes + lane} * N, at = row * r.columns + column;
      bool inside = exists && column < r.columns;
      take(sum[k], inside ? r.sum : nullptr, at);
      take(dsum[k], inside ? r.dsum : nullptr, at);
#pragma unroll
      for (int n = 0; n < Norms; ++n) take(dout[n][k], inside ? r.dout[n] : nullptr, at);
    }
  }

 private:
  static __device__ void take(Held<T, N>& x, const void* from, int64_t at) {
    if (from)
      x = load_held<T, N>(static_cast<const T*>(from) + at);
    else
      x = {};
  }
};

template <class W>
using Two = Pack<W, 2>;

// Sums of two values over the `lanes` threads of each row of a block. Calls take turns, 0 and 1, at
// the room for them, so that one barrier is enough.
template <class W>
__device__ Two<W> over_row(const Two<W>& x, int lanes, int turn) {
  __shared__ Two<W> parts[2][kMostThreads / 32];
  int warp = static_cast<int>(threadIdx.x) / 32, warps = lanes / 32, first = warp / warps * warps;
  W mine = sums_over_warp(x.at);
  if (threadIdx.x % 16 == 0) parts[turn][warp].at[threadIdx.x % 32 / 16] = mine;
  __syncthreads();
  Two<W> sum = parts[turn][first];
#pragma unroll 4
  for (int w = first + 1; w < first + warps; ++w) {
    Two<W> part = parts[turn][w];
    sum.at[0] += part.at[0], sum.at[1] += part.at[1];
  }
  return sum;
}

// to [columns at at ...] = the sums of a block's rows, in order; every thread calls it.
template <class W, int N>
__device__ void sum_over_rows(const W (&sums)[N], W* to, int64_t at, int64_t columns, int lanes) {
  __shared__ W all[N][kMostThreads];
  __syncthreads();  // it may be in use by the call before
#pragma unroll
  for (int j = 0; j < N; ++j) all[j][threadIdx.x] = sums[j];
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= lanes || at >= columns) return;
  constexpr int M = N < kPack<W> ? N : kPack<W>;
#pragma unroll
  for (int j = 0; j < N; j += M) {
    Pack<W, M> whole{};
    for (unsigned t = threadIdx.x; t < blockDim.x; t += static_cast<unsigned>(lanes)) {
#pragma unroll
      for (int m = 0; m < M; ++m) whole.at[m] += all[j + m][t];
    }
    store_pack(to + at + j, whole);
  }
}

// What a thread keeps for all rows: weights, and sums of the gradients of weight and bias of each
// norm and of the bias before them.
template <class T, int N, int Packs, int Norms>
struct GradientColumns {
  using W = Wide<T>;
  using Row = GradientRow<T, N, Packs, Norms>;
  Held<T, N> weight[Norms][Packs];
  W sums[2 * Norms + 1][Packs][N] = {};

  __device__ GradientColumns(const NormGradientRows& r, int lane, int lanes) {
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      int64_t column = int64_t{k * lanes + lane} * N;
#pragma unroll
      for (int n = 0; n < Norms; ++n) {
        weight[n][k] = {};
        if (column < r.columns)
          weight[n][k] = load_held<T, N>(static_cast<const T*>(r.weight[n]) + column);
      }
    }
  }
  // d: the gradient of what is normed; returns this thread's part of its sum, and of its sum with
  // that as weight.
  __device__ Two<W> add(const Row& g, W (&d)[Packs][N]) {
    Two<W> both{};
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        W normed = (g.sum[k][j] - g.mean) * g.scale;
        d[k][j] = 0;
#pragma unroll
        for (int n = 0; n < Norms; ++n) {
          W dout = g.dout[n][k][j];
          sums[2 * n][k][j] += dout * normed;
          sums[2 * n + 1][k][j] += dout;
          d[k][j] += dout * weight[n][k][j];
        }
        both.at[0] += d[k][j];
        both.at[1] += d[k][j] * normed;
      }
    }
    return both;
  }
  // The sums over the rows of a block.
  __device__ void store(const NormGradientRows& r, int lane, int lanes) const {
#pragma unroll
    for (int s = 0; s < 2 * Norms + 1; ++s) {
      W* to = static_cast<W*>(r.partial) + (blockIdx.x * r.sums + s) * r.columns;
#pragma unroll
      for (int k = 0; k < Packs; ++k)
        if (s < r.sums)
          sum_over_rows(sums[s][k], to, int64_t{k * lanes + lane} * N, r.columns, lanes);
    }
  }
};

// lanes: threads of a row.
template <class T, int N, int Packs, int Norms>
__global__ void __launch_bounds__(kMostThreads, 1)
    norm_gradient_kernel(NormGradientRows r, int lanes) {
  using W = Wide<T>;
  int lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes,
      at_once = static_cast<int>(blockDim.x) / lanes;
  auto column = [&](int k) { return int64_t{k * lanes + lane} * N; };
  GradientColumns<T, N, Packs, Norms> mine(r, lane, lanes);
  W share = W(1) / static_cast<W>(r.columns), d[Packs][N];
  int64_t row = int64_t{blockIdx.x} * at_once + group, step = int64_t{gridDim.x} * at_once;
  GradientRow<T, N, Packs, Norms> next;
  next.load(r, row, lane, lanes);
  for (int turn = 0; row - group < r.rows; row += step, turn ^= 1) {  // all threads end together
    GradientRow<T, N, Packs, Norms> g = next;
    if constexpr (Packs == 1) next.load(r, row + step, lane, lanes);
    Two<W> both = over_row(mine.add(g, d), lanes, turn);
    W of_mean = r.kind == Norm::kLayerNorm ? both[0] * share : W(0), of_deviation = both[1] * share;
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      Pack<T, N> dx;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        W normed = (g.sum[k][j] - g.mean) * g.scale;
        W x = (d[k][j] - of_mean - normed * of_deviation) * g.scale + g.dsum[k][j];
        mine.sums[2 * Norms][k][j] += x;
        dx.at[j] = static_cast<T>(x);
      }
      if (row < r.rows && column(k) < r.columns)
        store_pack<T, N>(static_cast<T*>(r.dx) + row * r.columns + column(k), dx);
    }
    if constexpr (Packs > 1) next.load(r, row + step, lane, lanes);
  }
  next_kernel_may_begin();
  mine.store(r, lane, lanes);
}

[[noreturn]] void refuse(int64_t columns) {
  fail(Exit::kInternal, "norm of rows of ", columns, " elements: a GPU's kernels take up to ",
       kMostColumns);
}

// The fewest packs of N columns for each of at most kMostThreads threads: 1, 2, 4, or as many as
// the longest rows take.
int packs_for(int64_t columns, int N) {
  for (int packs : {1, 2, 4, kMostColumns / kMostThreads / N})
    if (columns <= int64_t{packs} * N * kMostThreads) return packs;
  refuse(columns);
}

template <class T, int N>
void launch_norm(const NormRows& r) {
  auto launch = [&]<int Packs, int Lanes>(std::integral_constant<int, Packs>,
                                          std::integral_constant<int, Lanes>) {
    constexpr unsigned kRows = Lanes == 32 ? 4 : 1;
    norm_kernel<T, N, Packs, Lanes>
        <<<blocks((r.rows + kRows - 1) / kRows), Lanes * kRows, 0, stream()>>>(r);
  };
  using std::integral_constant;
  integral_constant<int, 256> block;
  if (r.columns <= 4 * N * 32)
    launch(integral_constant<int, 4>(), integral_constant<int, 32>());
  else if (r.columns <= N * 256)
    launch(integral_constant<int, 1>(), block);
  else if (r.columns <= 2 * N * 256)
    launch(integral_constant<int, 2>(), block);
  else if (r.columns <= 4 * N * 256)
    launch(integral_constant<int, 4>(), block);
  else if (r.columns <= kMostColumns)
    launch(integral_constant<int, kMostColumns / 1024 / N>(), integral_constant<int, 1024>());
  else
    refuse(r.columns);
}

template <class T, int N>
__global__ void __launch_bounds__(kTileX* kTileY) bias_gradient_kernel(NormGradientRows r) {
  using W = Wide<T>;
  int64_t column = (int64_t{blockIdx.x} * kTileX + threadIdx.x) * N;
  W sums[N] = {};
  for (int64_t row = first_row(); row < r.rows && column < r.columns; row += row_step()) {
    auto d = load_pack<T, N>(static_cast<const T*>(r.dsum) + row * r.columns + column);
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] += static_cast<W>(d.at[j]);
  }
  sum_over_tile<W, N>(sums, static_cast<W*>(r.partial) + blockIdx.y * r.columns, column, r.columns);
}

template <class T, int N, int Packs>
void launch_gradient(const NormGradientRows& r) {
  int64_t packs_of_row = (r.columns + N * Packs - 1) / (N * Packs);
  int lanes = static_cast<int>((packs_of_row + 31) / 32 * 32),
      threads = kMostThreads / lanes * lanes;
  if (r.norms == 1)
    norm_gradient_kernel<T, N, Packs, 1><<<blocks(r.parts), threads, 0, stream()>>>(r, lanes);
  else
    norm_gradient_kernel<T, N, Packs, 2><<<blocks(r.parts), threads, 0, stream()>>>(r, lanes);
}

template <class T, int N>
void launch_gradient(const NormGradientRows& r) {
  if (r.norms == 0) {
    dim3 grid = tiles(r.columns, N, static_cast<unsigned>(r.parts));
    bias_gradient_kernel<T, N><<<grid, tile_threads(), 0, stream()>>>(r);
    return;
  }
  switch (packs_for(r.columns, N)) {
    case 1:
      return launch_gradient<T, N, 1>(r);
    case 2:
      return launch_gradient<T, N, 2>(r);
    case 4:
      return launch_gradient<T, N, 4>(r);
    default:
      return launch_gradient<T, N, kMostColumns / kMostThreads / N>(r);
  }
}

}  // namespace

int64_t norm_parts_cuda(int64_t rows, int64_t columns) {
  // A block fills a multiprocessor's registers; each of its rows at once gets at least four.
  int64_t at_once = std::max<int64_t>(1, kMostThreads * 8 / std::max<int64_t>(columns, 1));
  return std::clamp<int64_t>(rows / (4 * at_once), 1, multiprocessors());
}

void norm_cuda(const NormRows& r) {
  with_type(r.type, [&]<class T>(T*) {
    if (packs<T>(r.columns, r.x, r.added, r.added2, r.bias, r.weight[0], r.weight[1], r.offset[0],
                 r.offset[1]))
      launch_norm<T, kPack<T>>(r);
    else
      launch_norm<T, 1>(r);
  });
  check_launch("norm", r.rows, r.columns);
}

void norm_gradient_cuda(const NormGradientRows& r) {
  with_type(r.type, [&]<class T>(T*) {
    if (packs<T>(r.columns, r.sum, r.dsum, r.dout[0], r.dout[1], r.weight[0], r.weight[1]))
      launch_gradient<T, kPack<T>>(r);
    else
      launch_gradient<T, 1>(r);
  });
  check_launch("gradient of a norm", r.rows, r.columns);
}

}  // namespace neox
