// A row is kept in registers between its statistics and its results: a warp takes one of up to 4
// packs a lane, else a block does. Backward, each thread keeps the same columns for all rows of its
// block, whose sums leave it once.
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

template <class T, int N>
__device__ Pack<T, N> sum_at(const NormRows& r, int64_t row, int64_t i) {
  using W = Wide<T>;
  int64_t at = row * r.columns + i;
  Pack<T, N> x = load_pack<T, N>(static_cast<const T*>(r.x) + at), added, bias;
  if (r.added) added = load_pack<T, N>(static_cast<const T*>(r.added) + at);
  if (r.bias) bias = load_pack<T, N>(static_cast<const T*>(r.bias) + i);
  if (!r.sum) return x;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    W more = r.added ? static_cast<W>(added.at[j]) : W(0);
    if (r.bias) more += static_cast<W>(bias.at[j]);
    more = static_cast<W>(static_cast<T>(more));  // as where they are added one after the other
    x.at[j] = static_cast<T>(static_cast<W>(x.at[j]) + more);
  }
  store_pack<T, N>(static_cast<T*>(r.sum) + at, x);
  return x;
}

template <class T, int N, int Packs, int Lanes>
__device__ void write_norm(const NormRows& r, int n, int64_t row, const Wide<T> (&x)[Packs][N]) {
  using W = Wide<T>;
  auto *weight = static_cast<const T*>(r.weight[n]), *offset = static_cast<const T*>(r.offset[n]);
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
    int64_t i = int64_t{k * Lanes + static_cast<int>(threadIdx.x) % Lanes} * N;
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
  W x[Packs][N], total = 0, squares = 0;
  auto column = [](int k) {
    return int64_t{k * Lanes + static_cast<int>(threadIdx.x) % Lanes} * N;
  };
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
    Pack<T, N> pack{};
    if (column(k) < r.columns) pack = sum_at<T, N>(r, row, column(k));
#pragma unroll
    for (int j = 0; j < N; ++j) total += x[k][j] = static_cast<W>(pack.at[j]);
  }
  if (r.norms == 0) return;
  W C = r.columns, mean = 0;
  if (r.options.kind == Norm::kLayerNorm) mean = over_row<Lanes>(total) / C;
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      x[k][j] -= mean;
      if (column(k) < r.columns) squares += x[k][j] * x[k][j];
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
  for (int n = 0; n < r.norms; ++n) write_norm<T, N, Packs, Lanes>(r, n, row, x);
}

// What a thread holds of one row.
template <class T, int N, int Packs, int Norms>
struct GradientRow {
  Pack<T, N> sum[Packs], dout[Norms][Packs], dsum[Packs];
};

template <class T, int N>
__device__ Pack<T, N> load_or_zeros(const void* from, int64_t at) {
  if (from) return load_pack<T, N>(static_cast<const T*>(from) + at);
  Pack<T, N> zeros;
#pragma unroll
  for (int j = 0; j < N; ++j) zeros.at[j] = static_cast<T>(0.0f);
  return zeros;
}

template <class T, int N, int Packs, int Norms>
__global__ void __launch_bounds__(512) norm_gradient_kernel(NormGradientRows r) {
  using W = Wide<T>;
  W sums[2 * Norms + 1][Packs][N] = {}, weight[Norms][Packs][N] = {};
  auto column = [](int k) {
    return int64_t{k * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)} * N;
  };
  W C = r.columns;
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
    if (column(k) >= r.columns) continue;
#pragma unroll
    for (int n = 0; n < Norms; ++n) {
      Pack<T, N> w = load_pack<T, N>(static_cast<const T*>(r.weight[n]) + column(k));
#pragma unroll
      for (int j = 0; j < N; ++j) weight[n][k][j] = static_cast<W>(w.at[j]);
    }
  }
  for (int64_t row = blockIdx.x; row < r.rows; row += gridDim.x) {
    GradientRow<T, N, Packs, Norms> g;
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      bool inside = column(k) < r.columns;
      int64_t at = row * r.columns + column(k);
      g.sum[k] = load_or_zeros<T, N>(inside ? r.sum : nullptr, at);
      g.dsum[k] = load_or_zeros<T, N>(inside ? r.dsum : nullptr, at);
#pragma unroll
      for (int n = 0; n < Norms; ++n)
        g.dout[n][k] = load_or_zeros<T, N>(inside ? r.dout[n] : nullptr, at);
    }
    W mean = static_cast<const W*>(r.mean)[row], scale = static_cast<const W*>(r.scale)[row];
    W plain = 0, projected = 0;
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        W normed = (static_cast<W>(g.sum[k].at[j]) - mean) * scale, d = 0;
#pragma unroll
        for (int n = 0; n < Norms; ++n) {
          W dout = static_cast<W>(g.dout[n][k].at[j]);
          sums[2 * n][k][j] += dout * normed;
          sums[2 * n + 1][k][j] += dout;
          d += dout * weight[n][k][j];
        }
        plain += d;
        projected += d * normed;
      }
    }
    W of_mean = r.kind == Norm::kLayerNorm ? over_block(plain, Add(), W(0)) / C : W(0);
    W of_deviation = over_block(projected, Add(), W(0)) / C;
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      Pack<T, N> dx;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        W normed = (static_cast<W>(g.sum[k].at[j]) - mean) * scale, d = 0;
#pragma unroll
        for (int n = 0; n < Norms; ++n) d += static_cast<W>(g.dout[n][k].at[j]) * weight[n][k][j];
        d = (d - of_mean - normed * of_deviation) * scale + static_cast<W>(g.dsum[k].at[j]);
        dx.at[j] = static_cast<T>(d);
        sums[2 * Norms][k][j] += static_cast<W>(dx.at[j]);
      }
      if (column(k) < r.columns)
        store_pack<T, N>(static_cast<T*>(r.dx) + row * r.columns + column(k), dx);
    }
  }
#pragma unroll
  for (int s = 0; s < 2 * Norms + 1; ++s) {
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      if (s >= r.sums || column(k) >= r.columns) continue;
      W* to = static_cast<W*>(r.partial) + (blockIdx.x * r.sums + s) * r.columns + column(k);
#pragma unroll
      for (int j = 0; j < N; ++j) to[j] = sums[s][k][j];
    }
  }
}

constexpr int kMostThreads = 512, kMostColumns = 16384;

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
  constexpr int kPacks = kMostColumns / 1024 / N;
  if (r.columns <= 4 * N * 32)
    norm_kernel<T, N, 4, 32><<<blocks((r.rows + 3) / 4), 128, 0, stream()>>>(r);
  else if (r.columns <= 4 * N * 256)
    norm_kernel<T, N, 4, 256><<<blocks(r.rows), 256, 0, stream()>>>(r);
  else if (r.columns <= kMostColumns)
    norm_kernel<T, N, kPacks, 1024><<<blocks(r.rows), 1024, 0, stream()>>>(r);
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
  int64_t threads = (r.columns + N * Packs - 1) / (N * Packs);
  auto whole = static_cast<unsigned>((threads + 31) / 32 * 32);
  if (r.norms == 1)
    norm_gradient_kernel<T, N, Packs, 1><<<blocks(r.parts), whole, 0, stream()>>>(r);
  else
    norm_gradient_kernel<T, N, Packs, 2><<<blocks(r.parts), whole, 0, stream()>>>(r);
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
  int64_t blocks = multiprocessors() * (columns < 2048 ? 4 : 2);
  return std::max<int64_t>(1, std::min(blocks, (rows + 15) / 16));
}

void norm_cuda(const NormRows& r) {
  with_type(r.type, [&]<class T>(T*) {
    if (packs<T>(r.columns, r.x, r.added, r.bias, r.weight[0], r.weight[1], r.offset[0],
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
