// A block of 32 x 8 threads takes 32 packs of columns and every eighth of its rows. Each thread
// keeps its columns, so that the bias is loaded, and its gradient summed, in registers, and has the
// next row on the way while it computes one. What an activation is gets chosen once a thread.
#include "ops/activation.h"
#include "ops/activation_formulas.h"
#include "ops/cuda_kernels.cuh"

namespace neox {
namespace {

using namespace cuda;

// N results of a thread's: their inputs, of which gated ones have two each.
template <class T, int N, bool kGated>
struct Columns {
  static constexpr int kEach = kGated ? 2 : 1, kInputs = kEach * N;
  static constexpr int kAligned = N == 1 ? 1 : kInputs;  // single pairs may begin anywhere
  using Results = Pack<T, kInputs, kAligned>;
  int64_t i = (int64_t{blockIdx.x} * kTileX + threadIdx.x) * N;  // the first column
  Wide<T> bias[kInputs] = {};
  __device__ explicit Columns(const ActivationRows& r) {
    if (!r.bias || i >= r.columns) return;
    auto pack = load_pack<T, kInputs, kAligned>(static_cast<const T*>(r.bias) + i * kEach);
#pragma unroll
    for (int j = 0; j < kInputs; ++j) bias[j] = pack[j];
  }
  // Of a row, or of the last one where there are fewer.
  __device__ auto inputs(const ActivationRows& r, int64_t row) const {
    const T* at = static_cast<const T*>(r.x) + (there(r, row) * r.columns + i) * kEach;
    if constexpr (kAligned % kPack<T> == 0)
      return load_words<T, kInputs>(at);
    else
      return load_pack<T, kInputs, kAligned>(at);
  }
  __device__ auto gradients(const ActivationRows& r, int64_t row) const {
    return load_pack<T, N>(static_cast<const T*>(r.dout) + there(r, row) * r.columns + i);
  }

 private:
  static __device__ int64_t there(const ActivationRows& r, int64_t row) {
    return row < r.rows ? row : r.rows - 1;
  }
};

template <class T, int N, bool kGated, class Formula>
__device__ void activate_rows(const ActivationRows& r, const Columns<T, N, kGated>& columns,
                              Formula formula) {
  using W = Wide<T>;
  constexpr int kEach = Columns<T, N, kGated>::kEach;
  auto next = columns.inputs(r, first_row());
  for (int64_t row = first_row(); row < r.rows; row += row_step()) {
    auto x = next;
    next = columns.inputs(r, row + row_step());
    Pack<T, N> y;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      W value = formula(x[kEach * j] + columns.bias[kEach * j]).value;
      if constexpr (kGated) value *= x[kEach * j + 1] + columns.bias[kEach * j + 1];
      y.at[j] = static_cast<T>(value);
    }
    store_pack<T, N>(static_cast<T*>(r.out) + row * r.columns + columns.i, y);
  }
}

template <class T, int N, bool kGated>
__global__ void __launch_bounds__(kTileX* kTileY) activation_kernel(ActivationRows r) {
  Columns<T, N, kGated> columns(r);
  if (columns.i >= r.columns) return;
  with_activation(r.activation, [&](auto known) {
    using Math = DeviceMath<Wide<T>>;
    activate_rows(r, columns, [](Wide<T> x) { return activate<decltype(known)::value, Math>(x); });
  });
}

// Adds to the sums of the inputs' columns.
template <class T, int N, bool kGated, class Formula>
__device__ void activate_gradients(const ActivationRows& r, const Columns<T, N, kGated>& columns,
                                   Wide<T> (&sums)[Columns<T, N, kGated>::kInputs],
                                   Formula formula) {
  using W = Wide<T>;
  using Mine = Columns<T, N, kGated>;
  auto next = columns.inputs(r, first_row());
  auto next_dout = columns.gradients(r, first_row());
  for (int64_t row = first_row(); row < r.rows; row += row_step()) {
    auto x = next;
    auto dout = next_dout;
    next = columns.inputs(r, row + row_step());
    next_dout = columns.gradients(r, row + row_step());
    typename Mine::Results dx;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      int at = Mine::kEach * j;
      W d = dout[j];
      auto [value, slope] = formula(x[at] + columns.bias[at]);
      if constexpr (kGated) {
        W up = x[at + 1] + columns.bias[at + 1];
        sums[at + 1] += value * d;
        dx.at[at + 1] = static_cast<T>(value * d);
        d *= up;
      }
      sums[at] += slope * d;
      dx.at[at] = static_cast<T>(slope * d);
    }
    int64_t to = (row * r.columns + columns.i) * Mine::kEach;
    store_pack<T, Mine::kInputs, Mine::kAligned>(static_cast<T*>(r.dx) + to, dx);
  }
}

template <class T, int N, bool kGated>
__global__ void __launch_bounds__(kTileX* kTileY) activation_gradient_kernel(ActivationRows r) {
  using W = Wide<T>;
  using Mine = Columns<T, N, kGated>;
  Mine columns(r);
  W sums[Mine::kInputs] = {};
  if (columns.i < r.columns)
    with_activation(r.activation, [&](auto known) {
      using Math = DeviceMath<W>;
      activate_gradients(r, columns, sums,
                         [](W x) { return activate<decltype(known)::value, Math>(x); });
    });
  if (!r.partial) return;
  int64_t width = r.columns * Mine::kEach;
  sum_over_tile<W, Mine::kInputs>(sums, static_cast<W*>(r.partial) + blockIdx.y * width,
                                  columns.i * Mine::kEach, width);
}

// Without sums over rows there may be many blocks, so that few are left alone at the end.
constexpr int64_t kRowsOfBlock = kTileY * 8, kMostParts = 65535;

// launch(T*, N, gated) with accesses of 16 bytes where rows begin at multiples of them.
template <class Launch>
void for_type(const char* name, const ActivationRows& r, const Launch& launch) {
  auto for_gate = [&]<class T>(T* type, auto gate) {
    constexpr int kEach = gate.value ? 2 : 1;
    if (packs<T>(kEach * r.columns, r.x, r.bias, r.dout, r.out, r.dx))
      launch(type, std::integral_constant<int, kPack<T> / kEach>(), gate);
    else
      launch(type, std::integral_constant<int, 1>(), gate);
  };
  with_type(r.type, [&]<class T>(T* type) {
    if (r.gated)
      for_gate(type, std::true_type());
    else
      for_gate(type, std::false_type());
  });
  check_launch(name, r.rows, r.columns);
}

}  // namespace

int64_t activation_parts_cuda(int64_t rows, int64_t columns) { return tile_parts(rows, columns); }

void activation_cuda(const ActivationRows& r) {
  for_type("activation", r,
           [&]<class T, int N, bool kGated>(T*, std::integral_constant<int, N>,
                                            std::bool_constant<kGated>) {
             unsigned parts = blocks((r.rows + kRowsOfBlock - 1) / kRowsOfBlock, kMostParts);
             activation_kernel<T, N, kGated>
                 <<<tiles(r.columns, N, parts), tile_threads(), 0, stream()>>>(r);
           });
}

void activation_gradient_cuda(const ActivationRows& r) {
  for_type("gradient of an activation", r,
           [&]<class T, int N, bool kGated>(T*, std::integral_constant<int, N>,
                                            std::bool_constant<kGated>) {
             auto parts = static_cast<unsigned>(r.parts);
             activation_gradient_kernel<T, N, kGated>
                 <<<tiles(r.columns, N, parts), tile_threads(), 0, stream()>>>(r);
           });
}

}  // namespace neox
