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

template <class T, int N>
__global__ void __launch_bounds__(kTileX* kTileY) dropout_kernel(DropoutRows r) {
  using W = Wide<T>;
  int64_t column = (int64_t{blockIdx.x} * kTileX + threadIdx.x) * N;
  W scale = r.scale, bias[N] = {}, sums[N] = {};
  if (r.bias && column < r.columns) {
    auto b = load_pack<T, N>(static_cast<const T*>(r.bias) + column);
#pragma unroll
    for (int j = 0; j < N; ++j) bias[j] = static_cast<W>(b.at[j]);
  }
  int64_t first_sample = r.first_sample ? *r.first_sample : 0;
  Divided sample(first_row(), r.per_sample / r.columns, row_step());
  for (int64_t row = first_row(); row < r.rows && column < r.columns;
       row += row_step(), sample.advance()) {
    int64_t start = row * r.columns + column;
    auto x = load_pack<T, N>(static_cast<const T*>(r.x) + start), residual = x;
    if (r.residual) residual = load_pack<T, N>(static_cast<const T*>(r.residual) + start);
    Bits<N> bits(r, first_sample + sample.whole, r.offset + sample.part * r.columns + column);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      W v = x[j];
      if (r.bias) v = static_cast<W>(static_cast<T>(v + bias[j]));
      v = bits.at[j] < r.drop_below ? W(0) : static_cast<W>(static_cast<T>(v * scale));
      sums[j] += v;
      if (r.residual) v += residual[j];
      x.at[j] = static_cast<T>(v);
    }
    store_pack<T, N>(static_cast<T*>(r.y) + start, x);
  }
  if (!r.partial) return;
  sum_over_tile<W, N>(sums, static_cast<W*>(r.partial) + blockIdx.y * r.columns, column, r.columns);
}

template <class T, int N>
void launch(const DropoutRows& r) {
  dim3 grid = tiles(r.columns, N, static_cast<unsigned>(r.parts));
  dropout_kernel<T, N><<<grid, tile_threads(), 0, stream()>>>(r);
}

}  // namespace

int64_t dropout_parts_cuda(int64_t rows, int64_t columns) { return tile_parts(rows, columns); }

void dropout_cuda(const DropoutRows& r) {
  with_type(r.type, [&]<class T>(T*) {
    if (r.offset % 4 == 0 && packs<T>(r.columns, r.x, r.residual, r.bias, r.y))
      launch<T, kPack<T>>(r);
    else
      launch<T, 1>(r);
  });
  check_launch("dropout", r.rows, r.columns);
}

}  // namespace neox
