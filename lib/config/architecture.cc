#include "config/architecture.h"

#include <utility>

#include "base/error.h"

namespace neox {
namespace {

std::string position_text(const ModelConfig& c) {
  switch (c.position_embedding) {
    case PositionEmbedding::kRotary:
      return concat("rotary ", c.rotary_pct, " base ", c.rotary_base);
    case PositionEmbedding::kLearned:
      return concat(c.positions, " learned positions");
    case PositionEmbedding::kSinusoidal:
      return "sinusoidal positions";
    case PositionEmbedding::kAlibi:
      return "ALiBi";
    case PositionEmbedding::kRelative:
      return concat("relative positions in ", c.rpe_buckets, " buckets to ", c.rpe_max_distance);
    case PositionEmbedding::kNone:
      break;
  }
  return "no positions";
}

std::string scaling_text(const RotaryScaling& r) {
  if (r.factor == 1) return "";
  std::string text = concat(", rotary scaling ", r.factor);
  switch (r.kind) {
    case RotaryKind::kLinear:
      return text + " of all waves";
    case RotaryKind::kYarn:
      return concat(text, " by YaRN, ", r.beta_slow, "..", r.beta_fast, " turns in ",
                    r.original_positions, r.truncate ? "" : " (not truncated)",
                    ", attention factor ", r.attention_factor);
    case RotaryKind::kLlama3:
      break;
  }
  return concat(text, " of ", r.low_freq_factor, "..", r.high_freq_factor, " waves in ",
                r.original_positions);
}

std::string multipliers_text(const ModelConfig& c) {
  if (!c.mup) return "";
  return concat(", muP with scores times ", c.score_scale(), ", logits times ", c.logit_scale(),
                ", embeddings times ", c.embedding_scale(), ", positions times ",
                c.position_scale());
}

std::string experts_text(const ModelConfig& c) {
  if (!c.moe) return "";
  return concat(", ", c.moe->experts, " experts of ", c.moe->intermediate, " in layers ",
                c.moe->interval, " apart, ", c.moe->top_k, " a token by ",
                c.moe->router == Router::kTopK ? "top-k" : "Sinkhorn",
                c.moe->normalized ? ", weights that sum to 1" : "");
}

std::string activation_text(const ModelConfig& c) {
  static constexpr const char* kNames[] = {"gelu (erf)", "gelu (tanh)", "relu",    "silu",
                                           "softsign",   "mish",        "sigmoid", "identity"};
  return concat(c.gated ? "gated " : "", kNames[static_cast<size_t>(c.activation)]);
}

}  // namespace

const char* norm_name(const ModelConfig& model) {
  if (model.norm_weights == NormWeights::kOne) return "scalenorm";
  if (model.norm_weights == NormWeights::kNone) return "non_parametric_layernorm";
  return model.norm == Norm::kRmsNorm ? "rmsnorm" : "layernorm";
}

const char* norm_epsilon_key(const ModelConfig& model) {
  if (model.norm_weights == NormWeights::kOne) return "scalenorm_epsilon";
  return model.norm == Norm::kRmsNorm ? "rms_norm_epsilon" : "layernorm_epsilon";
}

// What GPT-NeoX's Pythia has is not named but where it differs: the text of older checkpoints.
std::string architecture(const ModelConfig& c) {
  std::string kv = c.groups() == c.heads ? "" : concat(" (", c.groups(), " of keys and values)");
  std::string text =
      concat(c.layers, " layers, hidden ", c.hidden, ", ", c.heads, " heads", kv, ", intermediate ",
             c.intermediate, ", vocabulary ", c.vocab, c.tied_embedding ? ", tied" : ", untied",
             " embedding, ", c.parallel_residual ? "parallel" : "sequential", " residual, ",
             position_text(c), ", ", activation_text(c), ", norm eps ", c.norm_eps);
  if (c.position_embedding == PositionEmbedding::kRotary) text += scaling_text(c.rotary_scaling);
  if (c.given_head_size > 0) text += concat(", heads of ", c.given_head_size);
  if (c.window > 0) text += concat(", window ", c.window);
  text += multipliers_text(c) + experts_text(c);
  const std::pair<bool, const char*> differences[] = {
      {c.norm == Norm::kRmsNorm && c.norm_weights == NormWeights::kEach, ", RMS norms"},
      {c.norm_weights == NormWeights::kOne, ", ScaleNorm"},
      {c.norm_weights == NormWeights::kNone, ", norms without weights"},
      {c.tied_norms, ", one norm for attention and MLP"},
      {c.qk_norm, ", norms of queries and keys"},
      {c.embedding_norm, ", a norm of embeddings"},
      {!c.attention_bias && !c.qkv_bias, ", attention without biases"},
      {c.qkv_bias, ", biases of queries, keys and values"},
      {!c.mlp_bias, ", MLP without biases"},
      {c.scores, ", a score as head"}};
  for (const auto& [is, words] : differences)
    if (is) text += words;
  return text;
}

bool has_architecture(ModelConfig model, const std::string& text, const ModelConfig* other) {
  if (architecture(model) == text) return true;
  if (!other) return false;
  model.rotary_base = other->rotary_base;
  model.rotary_scaling = other->rotary_scaling;
  if (!other->scores) {  // a reward model begins as one that writes, with a head of its own
    model.scores = false;
    model.tied_embedding = other->tied_embedding;
  }
  return architecture(model) == text;
}

}  // namespace neox
