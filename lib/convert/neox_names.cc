#include "convert/neox_names.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

using enum TpSplit;
using Ways = std::vector<std::vector<std::string>>;

// kSummed stands for the biases of row-parallel layers: see bias_form().
struct Row {
  const char* ours;
  TpSplit split;
  Ways ways;  // empty: as ours
};

const std::vector<Row>& block_rows() {
  static const std::vector<Row> kRows = {
      {"attention.query_key_value.weight", kQkv, {}},
      {"attention.query_key_value.bias", kQkv, {}},
      {"attention.dense.weight", kColumns, {}},
      {"attention.dense.bias", kSummed, {}},
      {"mlp.dense_h_to_4h.weight",
       kGated,
       {{"mlp.linear1.weight"}, {"mlp.dense_h_to_4h.weight"}, {"mlp.w3.weight", "mlp.w1.weight"}}},
      {"mlp.dense_h_to_4h.bias", kGated, {{"mlp.linear1.bias"}, {"mlp.dense_h_to_4h.bias"}}},
      {"mlp.dense_4h_to_h.weight",
       kColumns,
       {{"mlp.linear2.weight"}, {"mlp.dense_4h_to_h.weight"}, {"mlp.w2.weight"}}},
      {"mlp.dense_4h_to_h.bias", kSummed, {{"mlp.linear2.bias"}, {"mlp.dense_4h_to_h.bias"}}},
      {"mlp.router.weight", kNone, {{"mlp.router.layer.weight"}}},
      {"mlp.experts.dense_h_to_4h.weight", kExperts, {{"mlp.experts.mlp.w1"}}},
      {"mlp.experts.dense_4h_to_h.weight", kExpertsTurned, {{"mlp.experts.mlp.w2"}}},
  };
  return kRows;
}

// With the parallel residual each rank adds its bias before the sum over the ranks; else all have
// the same one, added after it.
TpForm form_of(TpSplit split, const ModelConfig& config) {
  if (split == kSummed) return {config.parallel_residual ? kSummed : kNone};
  if (split == kGated) return {config.gated ? kGated : TpSplit::kRows};
  if (split == kExperts || split == kExpertsTurned) return {split, config.moe->experts};
  if (split != kQkv || config.groups() == config.heads)
    return {split == kQkv ? TpSplit::kRows : split};
  return {kQkv, config.groups(), config.group_queries()};
}

// GPT-NeoX's own RMS norm calls its weight scale, which the fused one does not, and ScaleNorm its
// own g.
Ways norm_ways(const ModelConfig& config, const std::string& name) {
  if (config.norm == Norm::kLayerNorm) return {{name}};
  std::string norm = name.substr(0, name.rfind('.'));
  if (config.norm_weights == NormWeights::kOne) return {{norm + ".g"}};
  return {{norm + ".scale"}, {name}};
}

NeoxPlace block_place(const ModelConfig& config, int64_t layer, const std::string& name) {
  for (const Row& row : block_rows()) {
    if (name != row.ours) continue;
    Ways ways = row.ways.empty() ? Ways{{name}} : row.ways;
    if (!config.gated) std::erase_if(ways, [](const auto& way) { return way.size() > 1; });
    return {layer + 2, ways, form_of(row.split, config)};
  }
  return {layer + 2, norm_ways(config, name), {}};
}

}  // namespace

int64_t neox_layers(const ModelConfig& config) { return config.layers + 5; }

NeoxPlace neox_place(const ModelConfig& config, const std::string& ours) {
  if (ours == "embed_in.weight") return {0, {{"word_embeddings.weight"}}, {TpSplit::kRows}};
  if (ours == "embed_positions.weight") return {0, {{"position_embeddings.weight"}}, {}};
  if (ours == "relative_attention_bias.weight") return {2, {{kNeoxRelative}}, {kColumns}};
  if (ours == "embed_out.weight")
    return {config.layers + 4, {{"final_linear.weight"}}, {TpSplit::kRows}};
  constexpr std::string_view kFinal = "final_layer_norm.", kLayers = "layers.";
  if (ours.starts_with(kFinal))
    return {config.layers + 3, norm_ways(config, "norm." + ours.substr(kFinal.size())), {}};
  check(ours.starts_with(kLayers), "GPT-NeoX has no place for ", ours);
  size_t dot = ours.find('.', kLayers.size());
  return block_place(config, std::stoll(ours.substr(kLayers.size(), dot - kLayers.size())),
                     ours.substr(dot + 1));
}

bool neox_is_buffer(const std::string& theirs) {
  return theirs.ends_with("inv_freq") || theirs.ends_with("alibi_embed.slopes");
}

bool neox_decays(const std::string& theirs) {
  std::vector<std::string> parts = split(theirs, '.');
  bool norm = std::ranges::any_of(
      parts, [](const std::string& part) { return part.find("norm") != std::string::npos; });
  return !norm && parts.back() != "bias";
}

std::string neox_ignores(const ModelConfig& config, int64_t layer, const std::string& theirs) {
  bool block = layer >= 2 && layer < config.layers + 2;
  if (theirs.ends_with("inv_freq")) return "follows from the configuration";
  if (block && theirs == "attention.alibi_embed.slopes") return "follows from the number of heads";
  if (block && config.tied_norms && theirs.starts_with("post_attention_layernorm."))
    return "not used where gpt_j_tied is true";
  if (block && theirs == kNeoxRelative) return "a copy of that of the first block";
  if (config.tied_embedding && layer == config.layers + 4 && theirs == "word_embeddings.weight")
    return "tied to the embedding";
  return "";
}

void check_neox_has(const ModelConfig& config) {
  check_usage(!config.qk_norm,
              "the model norms queries and keys head by head; GPT-NeoX's use_qk_layernorm norms "
              "all heads of a rank together, which is another model");
  check_usage(config.given_head_size == 0,
              "GPT-NeoX's heads are hidden_size / num_attention_heads wide (kv_channels)");
  check_usage(!config.qkv_bias,
              "GPT-NeoX has no biases of queries, keys and values alone (add_qkv_bias)");
  check_usage(!config.embedding_norm, "GPT-NeoX has no norm of embeddings (embed_layernorm)");
  check_usage(config.rotary_scaling.factor == 1, "GPT-NeoX has no rotary scaling");
  if (!config.moe) return;
  check_usage(!config.gated, "the experts of GPT-NeoX are not gated, whatever `activation` says");
  check_usage(!config.moe->normalized,
              "GPT-NeoX does not divide the weights of a token's experts by their sum");
  check_usage(!config.parallel_residual,
              "GPT-NeoX loses what attention gives where experts run beside it "
              "(gpt_j_residual), which is another model");
}

}  // namespace neox
