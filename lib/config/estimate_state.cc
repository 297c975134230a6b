#include "config/estimate_state.h"

#include <algorithm>

namespace neox {
namespace {

using Block = ParameterParts::Block;

// Elements on the fullest stage: whole layers, what tp splits divided by it. A tied head has its
// copy of the embedding on the last stage.
int64_t fullest_stage(const Estimate& e, const Config& config) {
  int64_t tp = config.layout.tensor, pp = config.layout.pipe;
  int64_t n = ceil_div(config.model.layers, pp), whole = of_layers(config.model, n, &Block::whole);
  int64_t layers = (of_layers(config.model, n, &Block::all) - whole) / tp + whole;
  int64_t first = e.embedding / tp + e.embedding_norm + e.positions,
          last = e.embedding / tp + e.final_norm;
  if (pp > 1) return layers + std::max(first, last);
  return layers + first + e.final_norm + e.head / tp;
}

// Elements of the largest layer's matrices on a rank.
int64_t matrices(const Config& config) {
  ParameterParts parts = parameter_parts(config.model);
  const Block& block = config.model.moe ? parts.experts : parts.dense;
  return (block.all - block.whole) / config.layout.tensor;
}

// The largest matrix of a layer, which has one owner with Muon; experts' are one.
int64_t largest_matrix(const Config& config) {
  const ModelConfig& m = config.model;
  int64_t rows = m.head_columns() + 2 * m.groups() * m.head_size(),
          mlp = m.moe ? m.moe->experts * m.expert_inputs() : m.mlp_inputs();
  return std::max(rows, mlp) * m.hidden / config.layout.tensor;
}

// What matrices that are owned whole add: elements to a layer's buffer, and to the chunk of all
// layers that the fullest rank owns.
struct Uneven {
  int64_t layer = 0, chunk = 0;
};

// As ParamBuffer places them: chunks are equal unless that takes more than half as much again.
Uneven uneven_shares(const Config& config, int64_t shard) {
  bool whole = config.optimizer.kind == OptimizerKind::kMuon && config.layout.zero_stage >= 1;
  if (!whole || shard == 1) return {};
  int64_t layers = ceil_div(config.model.layers, config.layout.pipe), layer = matrices(config),
          largest = largest_matrix(config), equal = std::max(largest * shard, layer),
          even = ceil_div(layers * layer, shard);
  if (2 * equal > 3 * layer) return {0, std::min(largest, layers * layer - even)};
  return {equal - layer, layers * ceil_div(equal, shard) - even};
}

// Elements of the fullest stage that ZeRO 3 does not hold: of its layers' matrices a rank has its
// chunk, and two layers at a time, or all that are recomputed together.
int64_t let_go(const Config& config, int64_t shard, const Uneven& uneven) {
  if (config.layout.zero_stage < 3 || shard == 1) return 0;
  int64_t layers = ceil_div(config.model.layers, config.layout.pipe),
          together = config.train.recompute ? config.train.recompute_layers : 1,
          all = layers * matrices(config);
  int64_t held = std::max<int64_t>(2, together) * (matrices(config) + uneven.layer);
  return std::max<int64_t>(0, all - ceil_div(all, shard) - uneven.chunk - held);
}

// Elements of the gradients that ZeRO 2 and 3 have on their way: of the layer that backward is in,
// and of two that are being sent.
int64_t under_way(const Config& config, const Uneven& uneven) {
  if (config.layout.zero_stage < 2) return 0;
  int64_t layers = ceil_div(config.model.layers, config.layout.pipe);
  return std::min<int64_t>(3, layers) * (matrices(config) + uneven.layer);
}

}  // namespace

int64_t shards(const Estimate& e, const Config& config) {
  return config.layout.shard > 0 ? config.layout.shard : e.data_ranks;
}

double state_of_each(const Estimate& e, const Config& config) {
  return state_per_parameter(config.optimizer,
                             static_cast<double>(e.blocks) / static_cast<double>(e.parameters));
}

void count_state(Estimate& e, const Config& config) {
  e.rank_parameters = fullest_stage(e, config);
  int64_t n = e.rank_parameters, size = element_bytes(config.precision.type);
  int64_t state = std::max<int64_t>(size, 4);  // moments are fp32 at least
  int64_t shard = shards(e, config), stage = config.layout.zero_stage;
  Uneven uneven = uneven_shares(config, shard);
  int64_t chunk = e.rank_chunk = stage >= 1 ? ceil_div(n, shard) + uneven.chunk : n;
  int64_t padding = ceil_div(config.model.layers, config.layout.pipe) * uneven.layer;
  e.parameter_bytes = (n + (stage < 3 ? padding : 0) - let_go(config, shard, uneven)) * size;
  const auto& preference = config.train.preference;
  if (preference && preference->has_reference() && !preference->reference_free)
    e.reference_bytes = n * size;
  e.gradient_bytes = (stage >= 2 ? chunk + under_way(config, uneven) : n + padding) *
                     gradient_bytes(config.precision);
  if (config.precision.gradients)  // those of the embedding or of the head, which are fp32 before
    e.gradient_bytes += ceil_div(e.embedding, config.layout.tensor) * state;
  const DiagnosticsConfig& d = config.train.diagnostics;
  if (d.noise_steps > 0 && !d.noise_on_host)  // their sum over steps
    e.gradient_bytes += ceil_div(n, e.data_ranks) * state;
  e.master_bytes = size < 4 ? chunk * 4 : 0;
  e.moment_bytes =
      static_cast<int64_t>(state_of_each(e, config) * static_cast<double>(chunk)) * state;
  if (config.optimizer.kind == OptimizerKind::kOneBitAdam)  // what compression lost: not saved
    e.moment_bytes += (chunk + ceil_div(chunk, e.data_ranks)) * state;
  if (config.optimizer.place == StatePlace::kHost) e.master_bytes = chunk * state;
}

}  // namespace neox
