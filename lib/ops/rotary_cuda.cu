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

// Where a thread's N columns come from: one of q, k, v, a head of it, and a place in that head.
struct Source {
  int64_t column, which, head, at;
  bool turned;  // has a partner, half the turned elements away
  __device__ Source(const HeadRows& r, int N)
      : column((int64_t{blockIdx.x} * kTileX + threadIdx.x) * N) {
    int64_t all = column / r.D, group = all / (r.queries + 2), part = all % (r.queries + 2);
    at = column % r.D;
    which = part < r.queries ? 0 : part - r.queries + 1;
    head = which == 0 ? group * r.queries + part : group;
    turned = which < 2 && at < 2 * r.half;
  }
};

// A row of the gradient: its sample and token, and its row of the table.
struct Token {
  Divided place, turn;
  __device__ explicit Token(const HeadRows& r)
      : place(first_row(), r.T, row_step()), turn(first_row(), r.table_rows, row_step()) {}
  __device__ void advance() { place.advance(), turn.advance(); }
};

template <class T, int N>
__device__ Pack<T, N> gradient_at(const HeadRows& r, const Source& s, const Token& token) {
  using W = Wide<T>;
  const int64_t* stride = r.stride[s.which];
  const T* x = static_cast<const T*>(r.from[s.which]) + token.place.whole * stride[0] +
               s.head * stride[1] + token.place.part * stride[2] + s.at;
  auto mine = load_pack<T, N>(x);
  if (!s.turned) return mine;
  bool first = s.at < r.half;
  auto other = load_pack<T, N>(first ? x + r.half : x - r.half);
  int64_t turn = token.turn.part * r.half + (first ? s.at : s.at - r.half);
  auto cos = load_angles<N>(r.cos + turn), sin = load_angles<N>(r.sin + turn);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    W sine = first ? sin.at[j] : -sin.at[j];
    mine.at[j] = static_cast<T>(mine[j] * cos.at[j] + other[j] * sine);
  }
  return mine;
}

template <class T, int N>
__global__ void __launch_bounds__(kTileX* kTileY) gradient_kernel(HeadRows r, int64_t columns) {
  using W = Wide<T>;
  Source source(r, N);
  W sums[N] = {};
  Token token(r);
  for (int64_t row = first_row(); row < r.B * r.T && source.column < columns;
       row += row_step(), token.advance()) {
    Pack<T, N> d;
#pragma unroll
    for (int j = 0; j < N; ++j) d.at[j] = static_cast<T>(0.0f);
    if (r.from[source.which]) d = gradient_at<T, N>(r, source, token);
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] += static_cast<W>(d.at[j]);
    store_pack<T, N>(static_cast<T*>(r.qkv) + row * columns + source.column, d);
  }
  if (!r.partial) return;
  sum_over_tile<W, N>(sums, static_cast<W*>(r.partial) + blockIdx.y * columns, source.column,
                      columns);
}

// Packs of N fit where every head, both halves and every stride are multiples of N.
template <class T>
bool heads_pack(const HeadRows& r) {
  bool fit = r.D % kPack<T> == 0 && r.half % kPack<T> == 0;
  for (int i = 0; i < 3; ++i)
    for (int64_t stride : r.stride[i]) fit = fit && (!r.from[i] || stride % kPack<T> == 0);
  return fit && packs<T>(r.D, r.qkv, r.from[0], r.from[1], r.from[2], r.cos, r.sin);
}

constexpr int kThreads = 256;

}  // namespace

int64_t head_parts_cuda(int64_t rows, int64_t columns) { return tile_parts(rows, columns); }

void rotate_heads_cuda(const HeadRows& r) {
  int64_t pairs = r.B * r.T * r.groups * (r.queries + 1) * r.half;
  with_type(r.type, [&]<class T>(T*) {
    auto launch = [&]<int N>(std::integral_constant<int, N>) {
      int64_t n = pairs / N;
      rotate_kernel<T, N>
          <<<blocks((n + kThreads - 1) / kThreads, 65536), kThreads, 0, stream()>>>(r, n);
    };
    if (heads_pack<T>(r))
      launch(std::integral_constant<int, kPack<T>>());
    else
      launch(std::integral_constant<int, 1>());
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
    if (heads_pack<T>(r))
      launch(std::integral_constant<int, kPack<T>>());
    else
      launch(std::integral_constant<int, 1>());
  });
  check_launch("gradient of the heads", r.B * r.T, columns);
}

}  // namespace neox
