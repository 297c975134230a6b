// Of a new checkpoint.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "convert/megatron_args.h"

namespace neox {
namespace {

using torchfile::Item;

void add_positions(Item::Entries& args, const ModelConfig& model, MegatronKind kind) {
  using enum PositionEmbedding;
  PositionEmbedding positions = model.position_embedding;
  bool rotary = positions == kRotary, learned = positions == kLearned;
  Item type = rotary ? "rope" : learned ? "learned_absolute" : "none";
  if (kind == MegatronKind::kBigScience)  // an enum, which is compared when a run goes on
    type = Item::call("megatron.enums", "PositionEmbeddingType", {learned ? 2 : 3});
  const RotaryScaling& scaling = model.rotary_scaling;
  bool scaled = rotary && scaling.factor != 1, linear = scaling.kind == RotaryKind::kLinear;
  args.insert(args.end(), {{"max_position_embeddings", model.positions},
                           {"position_embedding_type", type},
                           {"add_position_embedding", learned},
                           {"use_rotary_position_embeddings", rotary},
                           {"rotary_percent", model.rotary_pct},
                           {"rotary_base", static_cast<int64_t>(model.rotary_base)},
                           {"rope_theta", static_cast<int64_t>(model.rotary_base)},
                           {"rotary_interleaved", false},
                           {"rotary_seq_len_interpolation_factor",
                            scaled && linear ? Item(static_cast<int64_t>(scaling.factor)) : Item()},
                           {"use_rope_scaling", scaled && !linear},
                           {"rope_scaling_factor", linear ? 8.0 : scaling.factor}});
}

void add_layers(Item::Entries& args, const ModelConfig& model, const MegatronLayout& layout) {
  bool tanh = model.activation == Activation::kGeluTanh && !model.gated,
       rms = model.norm == Norm::kRmsNorm;
  bool deep_speed = layout.kind != MegatronKind::kMegatron;
  const char* norm = deep_speed ? rms ? "rmsnorm" : "layernorm" : rms ? "RMSNorm" : "LayerNorm";
  args.insert(args.end(), {{"num_layers", model.layers},
                           {"encoder_num_layers", model.layers},
                           {"hidden_size", model.hidden},
                           {"ffn_hidden_size", model.intermediate},
                           {"num_attention_heads", model.heads},
                           {"kv_channels", model.head_size()},
                           {"group_query_attention", model.groups() != model.heads},
                           {"num_query_groups", model.groups()},
                           {"num_key_value_heads", model.groups()},
                           {"qk_layernorm", model.qk_norm},
                           {"normalization", norm},
                           {"layernorm_epsilon", model.norm_eps},
                           {"embed_layernorm", model.embedding_norm},
                           {"apply_layernorm_1p", false},
                           {"apply_residual_connection_post_layernorm", false},
                           {"swiglu", model.gated},
                           {"squared_relu", false},
                           {"bias_gelu_fusion", tanh && model.mlp_bias},
                           {"openai_gelu", tanh && !model.mlp_bias},
                           {"onnx_safe", Item()},
                           {"add_bias_linear", model.mlp_bias},
                           {"add_qkv_bias", model.has_qkv_bias()},
                           {"untie_embeddings_and_output_weights", !model.tied_embedding},
                           {"hidden_dropout", model.hidden_dropout},
                           {"attention_dropout", model.attention_dropout},
                           {"init_method_std", model.init_std}});
}

const char* name_of(MegatronKind kind) {
  constexpr const char* kNames[] = {"Megatron-LM", "Megatron-DeepSpeed",
                                    "BigScience's fork of Megatron-DeepSpeed"};
  return kNames[static_cast<size_t>(kind)];
}

// What has ALiBi or a norm of embeddings is GPT-2 in all else.
void check_bigscience(const ModelConfig& model) {
  using enum PositionEmbedding;
  PositionEmbedding positions = model.position_embedding;
  const std::pair<bool, const char*> kRules[] = {
      {positions == kAlibi || positions == kLearned,
       "a norm of embeddings with positions other than ALiBi and learned"},
      {model.norm == Norm::kLayerNorm, "RMS norms"},
      {!model.gated, "gated MLPs"},
      {model.attention_bias && model.mlp_bias, "linear layers without biases"},
      {model.groups() == model.heads, "fewer heads of keys than of queries"},
      {model.tied_embedding, "an untied embedding (no_weight_tying)"},
      {!model.embedding_norm || model.norm_eps == kEmbeddingNormEpsilon,
       "a norm of embeddings with an epsilon other than 1e-5"}};
  for (const auto& [has, words] : kRules)
    check_usage(has, "the model has ", words, ", which ", name_of(MegatronKind::kBigScience),
                " does not have");
}

}  // namespace

MegatronKind deepspeed_kind(const ModelConfig& model) {
  bool fork = model.embedding_norm || model.position_embedding == PositionEmbedding::kAlibi;
  return fork ? MegatronKind::kBigScience : MegatronKind::kDeepSpeed;
}

void check_expressible(const ModelConfig& model, const MegatronLayout& layout) {
  using enum PositionEmbedding;
  PositionEmbedding positions = model.position_embedding;
  bool deep_speed = layout.kind != MegatronKind::kMegatron, rotary = positions == kRotary;
  bool fork = layout.kind == MegatronKind::kBigScience;
  bool gelu = model.activation == Activation::kGeluErf || model.activation == Activation::kGeluTanh;
  const RotaryScaling& scaling = model.rotary_scaling;
  bool llama3 = scaling.kind == RotaryKind::kLlama3 && scaling.low_freq_factor == 1 &&
                scaling.high_freq_factor == 4 && scaling.original_positions == 8192;
  bool linear = scaling.kind == RotaryKind::kLinear && scaling.factor == std::floor(scaling.factor);
  const std::pair<bool, const char*> kRules[] = {
      {!model.parallel_residual, "a parallel residual (gpt_j_residual)"},
      {positions != kAlibi || fork, "ALiBi (pos_emb: alibi)"},
      {rotary || positions == kLearned || positions == kNone || positions == kAlibi,
       "positions other than rotary, learned or none"},
      {model.gated ? model.activation == Activation::kSilu : gelu,
       "an activation other than GELU and SwiGLU"},
      {model.attention_bias == model.mlp_bias, "biases in attention or MLP alone"},
      {model.window == 0, "a sliding window"},
      {!model.moe, "experts with the routers of GPT-NeoX (moe_num_experts)"},
      {!model.qk_norm || !deep_speed, "norms of queries and keys"},
      {!model.qkv_bias || !deep_speed, "biases of queries, keys and values alone"},
      {model.norm_weights == NormWeights::kEach, "norms that have no weight for each value (norm)"},
      {!model.embedding_norm || fork, "a norm of embeddings (embed_layernorm)"},
      {!rotary || scaling.factor == 1 || (!deep_speed && (llama3 || linear)),
       "this scaling of rotary frequencies"},
      {!rotary || model.rotary_base == std::floor(model.rotary_base),
       "a base of rotary frequencies that is not whole"},
      {!layout.thirds || model.groups() == model.heads,
       "fewer heads of keys than of queries in thirds"}};
  for (const auto& [has, words] : kRules)
    check_usage(has, "the model has ", words, ", which ", name_of(layout.kind), " does not have");
  if (fork) check_bigscience(model);
}

Item megatron_args(const Config& config, const MegatronLayout& layout, int64_t vocab_multiple,
                   int64_t iteration) {
  const ModelConfig& model = config.model;
  check_expressible(model, layout);
  Item::Entries args;
  add_layers(args, model, layout);
  add_positions(args, model, layout.kind);
  args.insert(args.end(), {{"seq_length", model.seq},
                           {"padded_vocab_size", model.vocab},
                           {"make_vocab_size_divisible_by", vocab_multiple},
                           {"tokenizer_type", "GPT2BPETokenizer"},
                           {"tensor_model_parallel_size", layout.tensor},
                           {"pipeline_model_parallel_size", std::max<int64_t>(layout.pipeline, 1)},
                           {"virtual_pipeline_model_parallel_size", Item()},
                           {"iteration", iteration},
                           {"consumed_train_samples", 0},
                           {"consumed_valid_samples", 0}});
  if (layout.kind == MegatronKind::kDeepSpeed) {
    args.push_back({"num_experts", Item::list({1})});
    args.push_back({"no_pipeline_parallel", layout.pipeline == 0});
  }
  if (layout.thirds) args.push_back({"ds_sequence_parallel_fpdt", false});
  return Item::object("argparse", "Namespace", std::move(args));
}

}  // namespace neox
