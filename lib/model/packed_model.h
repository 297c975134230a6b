// The matrices that steps of generation read, in 12 bits a weight (ops/packed_weights.h) beside
// those in 16, which prompts read: one copy for all caches of a model whose weights stay as they
// are.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "ops/packed_weights.h"

namespace neox {

enum class WeightPacking {
  kNever,        // the weights may change
  kWhereFaster,  // by measurement, and where memory is left
  kAlways
};

class PackedModel {
 public:
  explicit PackedModel(WeightPacking packing) : packing_(packing) {}
  // Before each step of a cache that does not take packed matrices yet. True: now it may. The first
  // steps leave the matrices as they are, since packing takes about as long as it saves in so many.
  bool count_step(const RowKernels& kernels, const std::vector<WeightMatrix*>& matrices,
                  int threads);
  // Memory that a cache has and takes as its texts become longer, which packing leaves alone.
  void leave(int64_t bytes) { left_alone_ = bytes; }
  // What takes the place of a matrix; null: nothing does.
  const PackedWeights* of(const WeightMatrix& w) const;

 private:
  void pack(const RowKernels& kernels, const std::vector<WeightMatrix>& matrices, int threads);
  bool is_faster(const RowKernels& kernels, const std::vector<WeightMatrix>& matrices,
                 int threads) const;

  WeightPacking packing_;
  int64_t steps_ = 0, left_alone_ = 0;
  bool done_ = false;
  std::map<const void*, std::unique_ptr<PackedMatrix>> packed_;  // by what the matrix holds
};

}  // namespace neox
