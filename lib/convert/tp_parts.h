// How GPT-NeoX shares a parameter out over its tensor-parallel ranks, and back. Pure functions of
// tensors.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "shard/box.h"

namespace neox {

enum class TpSplit {
  kNone,      // each rank has the whole
  kRows,      // a run of rows
  kColumns,   // a run of columns
  kQkv,       // rows of a run of groups: a rank has its queries, then its keys, then its values;
              // here they are [group, {its queries ..., k, v}, D]
  kQkvSlots,  // as kQkv: a rank has, for each query, its rows, and then those slices of the keys
              // and of the values of its group that fall to it: D / group_queries rows of each
  kGated,     // rows of a run of columns of the output matrix: a rank has up, then gate; here they
              // are [column, {gate, up}]
  kQkvLast,   // as kQkv of as many keys as queries: a rank has [head, D, {q, k, v}]
  kGateUp,    // as kGated: a rank has gate, then up
  kSummed,    // each rank has a summand
  kExperts,  // a run of matrices of a stack [groups, rows, columns], their rows one after the other
  kExpertsTurned,  // the same of the transposed matrices
};

struct TpForm {
  TpSplit split = TpSplit::kNone;
  int64_t groups = 1, group_queries = 1;  // of kQkv and kQkvSlots; groups also of experts
};

// The shape of a rank's part. Throws (64) where `ranks` does not divide what is split.
Dims part_shape(const TpForm& form, const Dims& shape, int64_t ranks);

// A rank's part, contiguous.
at::Tensor part_of(const TpForm& form, const at::Tensor& tensor, int64_t rank, int64_t ranks);

// kMean is for the moments of an optimizer: a summand has the gradient of the sum.
enum class Summands { kSum, kMean };

// The whole of the parts of all ranks, contiguous. Copies of kNone that differ become their mean.
at::Tensor join_parts(const TpForm& form, const std::vector<at::Tensor>& parts,
                      Summands summands = Summands::kSum);

// Are all equal, bit for bit?
bool all_equal(const std::vector<at::Tensor>& parts);

}  // namespace neox
