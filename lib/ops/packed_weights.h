// Matrices of bf16 weights in 12 bits each, exactly: of a weight's 8 bits of exponent nearly all of
// a matrix's take few values, so 4 bits say which; the few others stand beside. What reads the
// memory only to multiply once, as a step of generation does, needs three quarters of the time.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "ops/row_kernels.h"

namespace neox {

class PackedMatrix {
 public:
  // Whether kernels take such a matrix so.
  static bool fits(const RowKernels& kernels, const WeightMatrix& w);
  static int64_t bytes_of(const WeightMatrix& w);
  // Allocates bytes_of(w), and chooses the codes by a part of the weights. w.data must outlive
  // pack().
  PackedMatrix(const RowKernels& kernels, const WeightMatrix& w);

  int64_t num_groups() const { return w_.rows / kPackedRows; }
  // Groups of rows [from, to). Threads share the groups. Where there are more weights of rare
  // exponents than are worth it, nothing is kept.
  void pack(int64_t from, int64_t to);
  // Behind pack() of all groups: what takes the place of the matrix. Null: nothing does.
  const PackedWeights* packed() const { return failed_ ? nullptr : &packed_; }

 private:
  const RowKernels& kernels_;
  WeightMatrix w_;
  at::Tensor memory_;
  std::array<uint8_t, 256> code_of_;
  PackedWeights packed_;
  std::atomic<bool> failed_ = false;
};

}  // namespace neox
