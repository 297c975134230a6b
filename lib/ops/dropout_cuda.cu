// A thread takes packs of columns, of which each four share a block of random bits, and every
// eighth row of its block's.
#include "ops/cuda_kernels.cuh"
#include "ops/dropout.h"

namespace neox {
namespace {

using namespace cuda;

// The bits of the N elements from a position on, which is a multiple of four where N is.
template <int N>
struct Bits {
  uint32_t at[N];
  __device__ Bits(const DropoutRows& r, int64_t sample, int64_t position) {
    auto block = [&](int64_t p) {
      return philox(r.key, static_cast<uint64_t>(p / 4), static_cast<uint64_t>(sample));
    };
#pragma unroll
    for (int j = 0; j < N; j += N % 4 == 0 ? 4 : 1) {
      Random4 four = block(position + j);
      if constexpr (N % 4 == 0) {
#pragma unroll
        for (int lane = 0; lane < 4; ++lane) at[j + lane] = four.v[lane];
      } else {
        int lane = static_cast<int>((position + j) % 4);
        at[j] = lane == 0 ? four.v[0] : lane == 1 ? four.v[1] : lane == 2 ? four.v[2] : four.v[3];
      }
    }
  }
};

// Elements j of a row, rounded all at once: one at a time, it takes a slow unit.
template <class T, int N, class Value>
__device__ Held<T, N> rounded(const Value& value) {
  Pack<T, N> x;
#pragma unroll
  for (int j = 0; j < N; ++j) x.at[j] = static_cast<T>(value(j));
  return held_of(x);
}

// What a thread holds of one row, and where that lies in which sample.
template <class T, int N>
struct Row {
  Held<T, N> x, residual;
  int sample, place;  // place: in rows
};

// Rows that a thread has under way at once, and blocks for which a multiprocessor has registers.
constexpr int kTogether = 2, kBlocks = 3;

template <class T, int N>
__global__ void __launch_bounds__(kTileX* kTileY, kBlocks) dropout_kernel(DropoutRows r) {
  using W = Wide<T>;
  int64_t column = (int64_t{blockIdx.x} * kTileX + threadIdx.x) * N;
  bool inside = column < r.columns;
  W scale = r.scale, sums[N] = {};
  Held<T, N> bias{};
  if (r.bias && inside) bias = load_held<T, N>(static_cast<const T*>(r.bias) + column);
  int64_t first_sample = r.first_sample ? *r.first_sample : 0;
  Divided sample(r.before + first_row(), r.per_sample / r.stride, row_step());
  auto load = [&](int row) {
    int64_t start = row * r.columns + column;
    Row<T, N> x{{}, {}, sample.whole, sample.part};
    x.x = load_held<T, N>(static_cast<const T*>(r.x) + start);
    if (r.residual) x.residual = load_held<T, N>(static_cast<const T*>(r.residual) + start);
    sample.advance();
    return x;
  };
  auto work = [&](int row, const Row<T, N>& x) {
    Bits<N> bits(r, first_sample + x.sample, r.offset + x.place * r.stride + column);
    Held<T, N> with_bias = x.x;
    if (r.bias) with_bias = rounded<T, N>([&](int j) { return x.x[j] + bias[j]; });
    Held<T, N> y = rounded<T, N>(
        [&](int j) { return bits.at[j] < r.drop_below ? W(0) : with_bias[j] * scale; });
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] += y[j];
    if (r.residual) y = rounded<T, N>([&](int j) { return y[j] + x.residual[j]; });
    store_held(static_cast<T*>(r.y) + row * r.columns + column, y);
  };
  if (inside) for_rows<kTogether>(r.rows, load, work);
  if (!r.partial) return;
  sum_over_tile<W, N>(sums, static_cast<W*>(r.partial) + blockIdx.y * r.columns, column, r.columns);
}

template <class T, int N>
void launch(const DropoutRows& r) {
  dim3 grid = tiles(r.columns, N, static_cast<unsigned>(r.parts));
  dropout_kernel<T, N><<<grid, tile_threads(), 0, stream()>>>(r);
}

}  // namespace

int64_t dropout_parts_cuda(int64_t rows, int64_t columns) {
  return tile_parts(rows, columns, kBlocks);
}

void dropout_cuda(const DropoutRows& r) {
  with_type(r.type, [&]<class T>(T*) {
    if (r.offset % 4 == 0 && r.stride % 4 == 0 && packs<T>(r.columns, r.x, r.residual, r.bias, r.y))
      launch<T, kPack<T>>(r);
    else
      launch<T, 1>(r);
  });
  check_launch("dropout", r.rows, r.columns);
}

}  // namespace neox
