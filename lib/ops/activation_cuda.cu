// A block of 32 x 8 threads takes 32 packs of columns and every eighth of its rows. Each thread
// keeps its columns, so that the bias is loaded, and its gradient summed, in registers.
#include "ops/activation.h"
#include "ops/activation_formulas.h"
#include "ops/cuda_kernels.cuh"

namespace neox {
namespace {

using namespace cuda;

// N results of a thread's: their inputs, of which gated ones have two each.
template <class T, int N, bool kGated>
struct Columns {
  static constexpr int kInputs = kGated ? 2 * N : N;
  static constexpr int kAligned = N == 1 ? 1 : kInputs;  // single pairs may begin anywhere
  using Inputs = Pack<T, kInputs, kAligned>;
  int64_t i = (int64_t{blockIdx.x} * kTileX + threadIdx.x) * N;  // the first column
  Wide<T> bias[kInputs] = {};
  __device__ explicit Columns(const ActivationRows& r) {
    if (!r.bias || i >= r.columns) return;
    Inputs pack = load_pack<T, kInputs, kAligned>(static_cast<const T*>(r.bias) + i * kInputs / N);
#pragma unroll
    for (int j = 0; j < kInputs; ++j) bias[j] = static_cast<Wide<T>>(pack.at[j]);
  }
  __device__ Inputs inputs(const ActivationRows& r, int64_t row) const {
    return load_pack<T, kInputs, kAligned>(static_cast<const T*>(r.x) +
                                           (row * r.columns + i) * kInputs / N);
  }
};

template <class T, int N, bool kGated>
__global__ void __launch_bounds__(kTileX* kTileY) activation_kernel(ActivationRows r) {
  using W = Wide<T>;
  Columns<T, N, kGated> columns(r);
  if (columns.i >= r.columns) return;
  for (int64_t row = first_row(); row < r.rows; row += row_step()) {
    auto x = columns.inputs(r, row);
    Pack<T, N> y;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      constexpr int kEach = kGated ? 2 : 1;
      W v = static_cast<W>(x.at[kEach * j]) + columns.bias[kEach * j];
      W value = activate<DeviceMath<W>>(r.activation, v).value;
      if constexpr (kGated)
        value *= static_cast<W>(x.at[kEach * j + 1]) + columns.bias[kEach * j + 1];
      y.at[j] = static_cast<T>(value);
    }
    store_pack<T, N>(static_cast<T*>(r.out) + row * r.columns + columns.i, y);
  }
}

template <class T, int N, bool kGated>
__global__ void __launch_bounds__(kTileX* kTileY) activation_gradient_kernel(ActivationRows r) {
  using W = Wide<T>;
  using Mine = Columns<T, N, kGated>;
  Mine columns(r);
  W sums[Mine::kInputs] = {};
  for (int64_t row = first_row(); row < r.rows && columns.i < r.columns; row += row_step()) {
    auto x = columns.inputs(r, row);
    auto dout = load_pack<T, N>(static_cast<const T*>(r.dout) + row * r.columns + columns.i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      constexpr int kEach = kGated ? 2 : 1;
      int at = kEach * j;
      W v = static_cast<W>(x.at[at]) + columns.bias[at], d = static_cast<W>(dout.at[j]);
      auto [value, slope] = activate<DeviceMath<W>>(r.activation, v);
      if constexpr (kGated) {
        W up = static_cast<W>(x.at[at + 1]) + columns.bias[at + 1];
        sums[at + 1] += value * d;
        x.at[at + 1] = static_cast<T>(value * d);
        d *= up;
      }
      sums[at] += slope * d;
      x.at[at] = static_cast<T>(slope * d);
    }
    int64_t to = (row * r.columns + columns.i) * Mine::kInputs / N;
    store_pack<T, Mine::kInputs, Mine::kAligned>(static_cast<T*>(r.dx) + to, x);
  }
  if (!r.partial) return;
  int64_t width = r.columns * Mine::kInputs / N;
  sum_over_tile<W, Mine::kInputs>(sums, static_cast<W*>(r.partial) + blockIdx.y * width,
                                  columns.i * Mine::kInputs / N, width);
}

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
             auto parts = static_cast<unsigned>(tile_parts(r.rows, r.columns));
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
