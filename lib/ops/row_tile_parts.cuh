// What a block of a product by tiles (row_tiles.cuh) works on, and the rows of x that it has in
// shared memory, as they are or normed.
#pragma once
#include "ops/row_results.cuh"

namespace neox::cuda::by_tiles {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRows = 8;                                            // of a tile
constexpr int kPieceBytes = 256, kSlotBytes = kRows * kPieceBytes;  // of a row; of all
constexpr int kQuarters = 4;  // lanes that share a row of a tile

template <class T>
constexpr int kStep = kPieceBytes / static_cast<int>(sizeof(T));  // columns

// Rows of x in shared memory lie so far apart that those of two neighbours are in other banks.
template <class T>
__host__ __device__ int64_t pitch_of(int64_t columns) {
  return columns + 64 / static_cast<int64_t>(sizeof(T));
}

struct Job {
  ProductRows rows;
  int tiles, slots;       // of a block, of a warp
  bool copies;            // x into shared memory
  unsigned first_blocks;  // those of the first sum
};

__host__ __device__ inline int64_t parts_bytes(const Job& job) {
  return job.tiles * kWarps * kRows * job.rows.B * static_cast<int64_t>(sizeof(float));
}
__host__ __device__ inline int64_t ring_bytes(const Job& job) {
  return int64_t{job.slots} * kWarps * kSlotBytes;
}

// What this thread works on, and where its block has what it shares.
template <class T>
struct Place {
  const ProductRows::Sum& sum;
  int B, warp, lane, row, quarter;  // row: of a tile and of x
  int first_row, tiles, slots;
  unsigned char* ring;  // of the warp
  float* parts;         // [tiles, kWarps, kRows, B]
  T* x;                 // copied or normed

  __device__ Place(const Job& job, unsigned char* memory)
      : sum(job.rows.sums[blockIdx.x >= job.first_blocks ? 1 : 0]),
        B(static_cast<int>(job.rows.B)),
        warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        row(lane / kQuarters),
        quarter(lane % kQuarters),
        slots(job.slots) {
    unsigned block = blockIdx.x - (blockIdx.x >= job.first_blocks ? job.first_blocks : 0);
    first_row = static_cast<int>(block) * job.tiles * kRows;
    int left = (static_cast<int>(sum.rows) - first_row + kRows - 1) / kRows;
    tiles = left < job.tiles ? left : job.tiles;
    ring = memory + warp * slots * kSlotBytes;
    parts = reinterpret_cast<float*>(memory + ring_bytes(job));
    x = reinterpret_cast<T*>(memory + ring_bytes(job) + parts_bytes(job));
  }
  __device__ float* part(int tile, int by, int of_row) const {
    return parts + ((tile * kWarps + by) * kRows + of_row) * B;
  }
  // The sum of all warps' parts.
  __device__ float product(const Result<T>& at) const {
    float sum = 0;
    int with_pieces = at.exists ? warps() : 0;
#pragma unroll
    for (int by = 0; by < kWarps; ++by)
      if (by < with_pieces) sum += part(at.row / kRows, by, at.row % kRows)[at.b];
    return sum;
  }

 private:
  // Of the block: those with pieces of the longest term.
  __device__ int warps() const {
    auto columns = static_cast<int>(sum.terms[0].columns);
    if (sum.num_terms > 1 && sum.terms[1].columns > columns)
      columns = static_cast<int>(sum.terms[1].columns);
    int pieces = (columns + kStep<T> - 1) / kStep<T>;
    return pieces < kWarps ? pieces : kWarps;
  }
};

// The rows of x of all terms into shared memory.
template <class T>
__device__ void copy_rows(const Place<T>& p) {
  const ProductRows::Term &one = p.sum.terms[0], &two = p.sum.terms[1];
  int packs = static_cast<int>(one.columns) / kPack<T>, first = p.B * packs,
      more = p.sum.num_terms > 1 ? static_cast<int>(two.columns) / kPack<T> : 0;
  load_ahead<4>(
      static_cast<int>(threadIdx.x), first + p.B * more, kThreads,
      [&](int n) {
        auto* from = static_cast<const T*>(n < first ? one.x : two.x);
        return load_words_fresh(from + (n < first ? n : n - first) * kPack<T>);
      },
      [&](int n, const Words<T>& x) {
        int of = n < first ? n : n - first, each = n < first ? packs : more, b = of / each;
        T* to = p.x + (n < first ? 0 : p.B * pitch_of<T>(one.columns));
        to += b * pitch_of<T>(each * kPack<T>) + (of - b * each) * kPack<T>;
        *reinterpret_cast<uint4*>(to) = x.words[0];
      });
}

// The rows of x normed, each by one warp, so that it does not depend on how many there are.
// weights: of the norm, and its bias behind them.
template <class T>
__device__ void norm_rows(const Place<T>& p, const NormOptions& options, const T* weights) {
  if (p.warp >= p.B) return;
  auto columns = static_cast<int>(p.sum.terms[0].columns);
  const T* x = static_cast<const T*>(p.sum.terms[0].x) + p.warp * int64_t{columns};
  T* row = p.x + p.warp * pitch_of<T>(columns);
  int first = p.lane * kPack<T>, step = 32 * kPack<T>;
  load_ahead<8>(
      first, columns, step, [x](int i) { return load_words_fresh(x + i); },
      [row](int i, const Words<T>& pack) { *reinterpret_cast<uint4*>(row + i) = pack.words[0]; });
  auto mean = [&](auto value_of) {
    float sums[kPack<T>] = {};
#pragma unroll 4
    for (int i = first; i < columns; i += step) {
      Words<T> pack = load_words<T>(row + i);
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) sums[j] += value_of(pack[j]);
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kPack<T>; ++j) sum += sums[j];
    return over_warp(sum, Add()) / static_cast<float>(columns);
  };
  float middle = 0;
  if (options.kind == Norm::kLayerNorm) middle = mean([](float v) { return v; });
  float square = mean([middle](float v) { return (v - middle) * (v - middle); });
  float scale = 1 / sqrt(square + static_cast<float>(options.eps));
#pragma unroll 4
  for (int i = first; i < columns; i += step) {
    Words<T> pack = load_words<T>(row + i), weight = load_words<T>(weights + i),
             bias = load_words<T>(weights + columns + i);
    Pack<T, kPack<T>> y;
#pragma unroll
    for (int j = 0; j < kPack<T>; ++j)
      y.at[j] = static_cast<T>((pack[j] - middle) * scale * weight[j] + bias[j]);
    put_pack(row + i, y);
  }
}

}  // namespace neox::cuda::by_tiles
