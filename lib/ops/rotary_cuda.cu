// Forward, a thread turns one pack of pairs of one head. Backward, the gradients of queries, keys
// and values are gathered into one tensor, turned back, in tiles of columns whose sums are the
// bias's gradient.
#include "ops/cuda_kernels.cuh"
#include "ops/rotary.h"

namespace neox {
namespace {

using namespace cuda;

template <int N>
__device__ auto load_angles(const float* from) {
  constexpr int kAligned = N < 4 ? 1 : 4;
  return load_pack<float, N, kAligned>(from);
}

template <class T, int N>
__global__ void rotate_kernel(HeadRows r, int64_t n) {
  using W = Wide<T>;
  int64_t packs = r.half / N, heads = r.groups * (r.queries + 1);
  int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    int64_t at = i % packs * N, head = i / packs % heads, row = i / packs / heads;
    head += head / (r.queries + 1);  // values are not turned
    int64_t turn = row % r.table_rows * r.half + at;
    auto cos = load_angles<N>(r.cos + turn), sin = load_angles<N>(r.sin + turn);
    T* x = static_cast<T*>(r.qkv) + (row * r.groups * (r.queries + 2) + head) * r.D + at;
    auto a = load_pack<T, N>(x), b = load_pack<T, N>(x + r.half);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      W c = cos.at[j], s = sin.at[j], u = a[j], v = b[j];
      a.at[j] = static_cast<T>(u * c - v * s);
      b.at[j] = static_cast<T>(v * c + u * s);
    }
    store_pack<T, N>(x, a);
    store_pack<T, N>(x + r.half, b);
  }
}

// Where a thread's N columns of the gradient come from, row after row.
template <class T, int N>
class Source {
 public:
  struct Row {
    Held<T, N> mine, partner;
    int turn;  // row of the table
  };

  __device__ Source(const HeadRows& r, int64_t column) : token_(first_row(), r.T, row_step()) {
    int64_t head = column / r.D, group = head / (r.queries + 2), part = head % (r.queries + 2);
    int64_t which = part < r.queries ? 0 : part - r.queries + 1, at = column % r.D;
    const int64_t* stride = r.stride[which];
    if (which == 0) group = group * r.queries + part;
    given_ = r.from[which];
    next_ = static_cast<const T*>(r.from[which]) + token_.whole * stride[0] + group * stride[1] +
            token_.part * stride[2] + at;
    step_ = token_.step_whole * stride[0] + token_.step_part * stride[2];
    wrap_ = step_ + stride[0] - r.T * stride[2];
    turned_ = given_ && which < 2 && at < 2 * r.half;
    half_ = static_cast<int>(r.half);
    first_ = at < r.half;
    pair_ = static_cast<int>(first_ ? at : at - r.half);
    by_token_ = r.table_rows == r.T;
  }

  __device__ Row load(int row) {
    Row x{{}, {}, by_token_ ? token_.part : row};
    if (given_) x.mine = load_held<T, N>(next_);
    if (turned_) x.partner = load_held<T, N>(next_ + (first_ ? half_ : -half_));
    next_ += token_.advance() ? wrap_ : step_;
    return x;
  }

  __device__ Held<T, N> turned_back(const HeadRows& r, const Row& row) const {
    using W = Wide<T>;
    if (!turned_) return row.mine;
    int turn = row.turn * half_ + pair_;
    auto cos = load_angles<N>(r.cos + turn), sin = load_angles<N>(r.sin + turn);
    Pack<T, N> d;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      W sine = first_ ? sin.at[j] : -sin.at[j];
      d.at[j] = static_cast<T>(row.mine[j] * cos.at[j] + row.partner[j] * sine);
    }
    return held_of(d);
  }

 private:
  const T* next_;
  int64_t step_, wrap_;  // to the next row, and where that is another sample's
  Divided token_;
  bool given_, turned_, first_, by_token_;  // first_: of a pair of elements
  int half_, pair_;
};

// Blocks for which a multiprocessor has registers, and rows of N elements that a thread has under
// way at once: as many bytes whatever N.
constexpr int kBlocks = 4;
template <class T, int N>
constexpr int kTogether = 2 * std::min(4, kPack<T> / N);

template <class T, int N>
__global__ void __launch_bounds__(kTileX* kTileY, kBlocks)
    gradient_kernel(HeadRows r, int64_t columns) {
  using W = Wide<T>;
  int64_t column = (int64_t{blockIdx.x} * kTileX + threadIdx.x) * N;
  W sums[N] = {};
  if (column < columns) {
    Source<T, N> source(r, column);
    T* to = static_cast<T*>(r.qkv) + column;
    auto width = static_cast<int>(columns);
    for_rows<kTogether<T, N>>(
        r.B * r.T, [&](int row) { return source.load(row); },
        [&](int row, const auto& x) {
          Held<T, N> d = source.turned_back(r, x);
#pragma unroll
          for (int j = 0; j < N; ++j) sums[j] += d[j];
          store_held(to + int64_t{row} * width, d);
        });
  }
  if (r.partial)
    sum_over_tile<W, N>(sums, static_cast<W*>(r.partial) + blockIdx.y * columns, column, columns);
}

// launch(N), N being the largest pack that fits: every head, both halves and every stride are
// multiples of it. Pythia 2.8B has halves of 10 in heads of 80, GPT-NeoX-20B 12 in 96.
template <class T, int N = kPack<T>, class Launch>
void with_pack(const HeadRows& r, const Launch& launch) {
  if constexpr (N > 1) {
    bool fits = r.D % N == 0 && r.half % N == 0;
    for (int i = 0; i < 3; ++i)
      for (int64_t stride : r.stride[i]) fits = fits && (!r.from[i] || stride % N == 0);
    for (const void* p : {static_cast<const void*>(r.qkv), r.from[0], r.from[1], r.from[2]})
      fits = fits && reinterpret_cast<uintptr_t>(p) % (N * sizeof(T)) == 0;
    for (const float* p : {r.cos, r.sin})
      fits = fits && (N < 4 || reinterpret_cast<uintptr_t>(p) % (4 * sizeof(float)) == 0);
    if (!fits) return with_pack<T, N / 2>(r, launch);
  }
  launch(std::integral_constant<int, N>());
}

constexpr int kThreads = 256;

}  // namespace

int64_t head_parts_cuda(int64_t rows, int64_t columns) {
  return tile_parts(rows, columns, kBlocks);
}

void rotate_heads_cuda(const HeadRows& r) {
  int64_t pairs = r.B * r.T * r.groups * (r.queries + 1) * r.half;
  with_type(r.type, [&]<class T>(T*) {
    auto launch = [&]<int N>(std::integral_constant<int, N>) {
      int64_t n = pairs / N;
      rotate_kernel<T, N>
          <<<blocks((n + kThreads - 1) / kThreads, 65536), kThreads, 0, stream()>>>(r, n);
    };
    with_pack<T>(r, launch);
  });
  check_launch("rotary embedding", r.B * r.T, r.groups * (r.queries + 2) * r.D);
}

void head_gradients_cuda(const HeadRows& r) {
  int64_t columns = r.groups * (r.queries + 2) * r.D;
  auto parts = static_cast<unsigned>(r.parts);
  with_type(r.type, [&]<class T>(T*) {
    auto launch = [&]<int N>(std::integral_constant<int, N>) {
      gradient_kernel<T, N><<<tiles(columns, N, parts), tile_threads(), 0, stream()>>>(r, columns);
    };
    with_pack<T>(r, launch);
  });
  check_launch("gradient of the heads", r.B * r.T, columns);
}

}  // namespace neox
