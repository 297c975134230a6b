#include "convert/megatron_names.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

namespace neox {
namespace {

struct Row {
  const char *ours, *classic;
  const char *core, *core_local;  // nullptr: it has none, or the same
};

// In a layer; the ends "weight" and "bias" are the same.
constexpr Row kLayer[] = {
    {"input_layernorm.", "input_layernorm.", "self_attention.linear_qkv.layer_norm_",
     "input_layernorm."},
    {"post_attention_layernorm.", "post_attention_layernorm.", "mlp.linear_fc1.layer_norm_",
     "pre_mlp_layernorm."},
    {"attention.query_layernorm.", "self_attention.q_layernorm.", "self_attention.q_layernorm.",
     nullptr},
    {"attention.key_layernorm.", "self_attention.k_layernorm.", "self_attention.k_layernorm.",
     nullptr},
    {"attention.query_key_value.", "self_attention.query_key_value.", "self_attention.linear_qkv.",
     nullptr},
    {"attention.dense.", "self_attention.dense.", "self_attention.linear_proj.", nullptr},
    {"mlp.dense_h_to_4h.", "mlp.dense_h_to_4h.", "mlp.linear_fc1.", nullptr},
    {"mlp.dense_4h_to_h.", "mlp.dense_4h_to_h.", "mlp.linear_fc2.", nullptr}};

constexpr Row kModel[] = {
    {"embed_in.", "language_model.embedding.word_embeddings.", "embedding.word_embeddings.",
     nullptr},
    {"embed_layernorm.", "language_model.embedding.word_embeddings.norm.", nullptr, nullptr},
    {"embed_positions.", "language_model.embedding.position_embeddings.",
     "embedding.position_embeddings.", nullptr},
    {"final_layer_norm.", "language_model.encoder.final_layernorm.", "decoder.final_layernorm.",
     nullptr},
    {"embed_out.", "language_model.output_layer.", "output_layer.", nullptr}};

// Copies of the embedding on the last pipeline stage.
constexpr const char* kCopies[] = {"word_embeddings_for_head.weight", "output_layer.weight",
                                   "language_model.output_layer.weight"};

void replace(std::string& text, const std::string& from, const char* to) {
  size_t at = text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
}

}  // namespace

std::vector<std::string> megatron_names(const std::string& ours) {
  constexpr std::string_view kLayers = "layers.";
  bool in_layer = ours.starts_with(kLayers);
  size_t end = in_layer ? ours.find('.', kLayers.size()) + 1 : 0;
  std::string layer = ours.substr(0, end), rest = ours.substr(end);
  auto rows = in_layer ? std::span<const Row>(kLayer) : std::span<const Row>(kModel);
  for (const Row& row : rows) {
    if (!rest.starts_with(row.ours)) continue;
    std::string last = rest.substr(std::string_view(row.ours).size());
    std::string classic = in_layer ? "language_model.encoder." + layer : "";
    std::string core = in_layer ? "decoder." + layer : "";
    std::vector<std::string> names = {classic + row.classic + last};
    if (row.core) names.push_back(core + row.core + last);
    if (row.core_local) names.push_back(core + row.core_local + last);
    return names;
  }
  return {ours};
}

std::string megatron_name_now(std::string theirs) {
  if (theirs.starts_with("module.")) theirs = theirs.substr(7);
  if (!theirs.starts_with("language_model.")) return theirs;
  replace(theirs, "language_model.transformer.", "language_model.encoder.");
  replace(theirs, "language_model.lm_head.", "language_model.output_layer.");
  replace(theirs, ".attention.", ".self_attention.");
  return theirs;
}

std::vector<std::string> megatron_copies() { return {std::begin(kCopies), std::end(kCopies)}; }

std::string megatron_ignores(const std::string& theirs, bool tied) {
  if (tied && std::ranges::count(kCopies, theirs) > 0) return "tied to embed_in";
  if (theirs.ends_with("._extra_state")) return "TransformerEngine's scales of fp8";
  if (theirs.ends_with("rotary_pos_emb.inv_freq")) return "follows from rotary_base";
  for (const char* state : {"optimizer.", "chained_", "rng_state"})
    if (theirs.starts_with(state)) return "state of the optimizer";
  return "";
}

TpForm megatron_form(const ParamSpec& ours, const ModelConfig& model, TpSplit qkv) {
  auto is = [&](const char* part) { return ours.name.find(part) != std::string::npos; };
  if (is(".query_key_value."))
    return {.split = qkv, .groups = model.groups(), .group_queries = model.group_queries()};
  if (model.gated && is(".dense_h_to_4h.")) return {.split = TpSplit::kGateUp};
  if (!ours.tp_dim) return {};
  return {.split = *ours.tp_dim == 0 ? TpSplit::kRows : TpSplit::kColumns};
}

}  // namespace neox
