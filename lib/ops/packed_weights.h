// Matrices of bf16 weights in 12 bits each, exactly: of a weight's 8 bits of exponent nearly all of
// a matrix's take few values, so 4 bits say which; the few others stand beside. What reads the
// memory only to multiply once, as a step of generation does, needs three quarters of the time.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "ops/row_kernels.h"

namespace neox {

// Threads share the groups of rows of count() and pack().
class PackedMatrix {
 public:
  // Whether kernels take such a matrix so.
  static bool fits(const RowKernels& kernels, const WeightMatrix& w);
  static int64_t bytes_of(const WeightMatrix& w);  // at most
  // Chooses the codes by a part of the weights, which must be there until they are packed.
  PackedMatrix(const RowKernels& kernels, const WeightMatrix& w);
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;

  int64_t num_groups() const { return w_.rows / kPackedRows; }
  void count(int64_t from, int64_t to);
  // Behind count() of all groups: allocates what they take. False: more weights have rare exponents
  // than are worth it.
  bool arrange();
  void pack(int64_t from, int64_t to);
  // Behind pack() of all groups: what takes the place of the matrix.
  const PackedWeights& packed() const { return packed_; }

 private:
  const uint16_t* rows_of(int64_t group) const;

  const RowKernels& kernels_;
  WeightMatrix w_;
  std::array<uint8_t, 256> code_of_;
  std::vector<PackedWeights::Place> places_;  // until arrange(), how many are rare
  at::Tensor memory_;
  PackedWeights packed_;
};

}  // namespace neox
