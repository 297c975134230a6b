// How other programs cut a parameter over the ranks of tensor parallelism, and in which order they
// keep its rows: joining the parts into a parameter of lib/model, and cutting it again. Differences
// between formats are PartRules.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "config/config.h"
#include "shard/box.h"

namespace neox {

enum class Cut {
  kRows,     // parts follow each other in dimension 0 (column-parallel layers, embeddings)
  kColumns,  // in dimension 1 (row-parallel layers)
  kCopies,   // each rank has all of it; copies that drifted apart are averaged, with a warning
  kSum,      // each rank adds its own (biases of row-parallel layers in GPT-NeoX's gpt_j_residual)
};

// Of the rows of one part. Ours are [group, {its queries ..., k, v}, D] and, gated,
// [column, {gate, up}]: any cut between groups or columns is a cut between ranks.
enum class RowOrder {
  kOurs,
  kThirds,     // all queries, all keys, all values of the part: [{q, k, v}, head, D]
  kHeadsLast,  // [head, D, {q, k, v}], as many keys as queries
  kGateUp,     // the gate's rows of the part, then as many of up
  kUpGate,
};

struct PartRule {
  Cut cut = Cut::kCopies;
  RowOrder order = RowOrder::kOurs;
};

// What a format does with the parameters that are not cut plainly.
struct PartLayout {
  RowOrder qkv = RowOrder::kOurs;      // kOurs, kThirds or kHeadsLast
  RowOrder gated = RowOrder::kGateUp;  // kOurs, kGateUp or kUpGate
  Cut output_bias = Cut::kCopies;      // of attention.dense and dense_4h_to_h: kCopies or kSum
};

// Of a parameter by our name: the dimension that lib/model splits is the one that all of them do.
PartRule part_rule(const ParamSpec& ours, const ModelConfig& model, const PartLayout& layout);

// Throws (64) where the parameter cannot be cut into so many parts.
Dims part_shape(const ParamSpec& ours, const PartRule& rule, const ModelConfig& model,
                int64_t parts);

// The parameter in our order, contiguous. The parts have the shape of part_shape() and one type.
at::Tensor join_parts(const std::vector<at::Tensor>& parts, const ParamSpec& ours,
                      const PartRule& rule, const ModelConfig& model);
// Part number `part` of `parts`, contiguous. Of a kSum, the first part has all and the others 0.
at::Tensor cut_part(const at::Tensor& whole, const ParamSpec& ours, const PartRule& rule,
                    const ModelConfig& model, int64_t part, int64_t parts);

}  // namespace neox
