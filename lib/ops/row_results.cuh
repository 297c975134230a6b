// The results of a block's products of rows, of which each thread takes care of some.
#pragma once
#include "ops/activation_formulas.h"
#include "ops/decode_kernels.cuh"
#include "ops/row_products.h"

namespace neox::cuda {

// Result i of a block that has some rows of the weights, the first of which is first_row.
template <class T>
struct Result {
  using W = Wide<T>;
  using Sum = ProductRows::Sum;
  int row, b, n;  // row: of the block's
  bool exists;

  __device__ Result(const Sum& sum, int rows_of_block, int first_row, int64_t B, int i)
      : row(i % rows_of_block),
        b(i / rows_of_block),
        n(first_row + row),
        exists(b < B && n < sum.rows) {}
  __device__ W bias(const Sum& sum) const {
    W all = 0;
    for (int t = 0; t < sum.num_terms && exists; ++t)
      if (auto* bias = static_cast<const T*>(sum.terms[t].bias)) all += static_cast<W>(bias[n]);
    return all;
  }
  __device__ W residual(const Sum& sum) const {
    if (!exists || !sum.residual) return 0;
    return static_cast<W>(static_cast<const T*>(sum.residual)[b * sum.rows + n]);
  }
  // Every thread calls it: gate and up lie with neighbours.
  __device__ void store(const Sum& sum, W value) const {
    W up = __shfl_xor_sync(kAllLanes, value, 1);
    if (!exists || (sum.gated && n % 2 != 0)) return;
    if (sum.activation != Activation::kIdentity)
      value = activate<DeviceMath<W>>(sum.activation, value).value;
    auto* out = static_cast<T*>(sum.out);
    if (sum.gated)
      out[(b * sum.rows + n) / 2] = static_cast<T>(value * up);
    else
      out[b * sum.rows + n] = static_cast<T>(value);
  }
};

// The weight and bias of a term's norm, or zeros, by the threads of a block.
template <class T>
__device__ void copy_norm(const ProductRows::Term& term, T* to, int threads) {
  int columns = static_cast<int>(term.columns), n = static_cast<int>(threadIdx.x) * kPack<T>;
#pragma unroll 1
  for (; n < 2 * columns; n += threads * kPack<T>) {
    auto* from = static_cast<const T*>(n < columns ? term.norm_weight : term.norm_bias);
    Pack<T, kPack<T>> pack{};
    if (from) pack = load_pack<T, kPack<T>>(from + n % columns);
    put_pack(to + n, pack);
  }
}

}  // namespace neox::cuda
