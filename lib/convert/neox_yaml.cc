#include "convert/neox_yaml.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"
#include "convert/neox_names.h"

namespace neox {
namespace {

struct ActivationKey {
  Activation activation;
  bool gated;
  const char* name;
};
constexpr ActivationKey kActivations[] = {
    {Activation::kGeluErf, false, "gelu"},      {Activation::kGeluTanh, false, "gelu"},
    {Activation::kRelu, false, "relu"},         {Activation::kSilu, false, "silu"},
    {Activation::kSoftsign, false, "softsign"}, {Activation::kMish, false, "mish"},
    {Activation::kGeluErf, true, "geglu"},      {Activation::kRelu, true, "reglu"},
    {Activation::kSilu, true, "swiglu"},        {Activation::kSigmoid, true, "glu"},
    {Activation::kIdentity, true, "bilinear"}};

struct PositionKey {
  PositionEmbedding kind;
  const char* name;
};
constexpr PositionKey kPositions[] = {
    {PositionEmbedding::kRotary, "rotary"},   {PositionEmbedding::kNone, "none"},
    {PositionEmbedding::kLearned, "learned"}, {PositionEmbedding::kSinusoidal, "sinusoidal"},
    {PositionEmbedding::kAlibi, "alibi"},     {PositionEmbedding::kRelative, "rpe"}};

class Yaml {
 public:
  template <class T>
  void add(const char* key, const T& value) {
    std::string text = nlohmann::json(value).dump();
    // PyYAML takes 1e-05 for a text.
    if (std::is_floating_point_v<T> && text.find('.') == text.npos)
      if (size_t e = text.find('e'); e != text.npos) text.insert(e, ".0");
    text_ += concat(key, ": ", text, "\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_mlp(Yaml& yaml, const ModelConfig& m) {
  const char* name = nullptr;
  for (const ActivationKey& a : kActivations)
    if (a.activation == m.activation && a.gated == m.gated) name = a.name;
  check_usage(name != nullptr, "GPT-NeoX does not have the model's activation");
  check_usage(m.mlp_bias || m.gated, "GPT-NeoX's MLPs without gates have biases");
  check_usage(m.mlp_bias || !m.parallel_residual,
              "GPT-NeoX loses what attention gives where an MLP without biases runs beside it "
              "(gpt_j_residual with use_bias_in_mlp: false), which is another model");
  check_usage(m.gated || m.intermediate % 2 == 0, "GPT-NeoX rounds the ", m.intermediate,
              " columns of the MLP up to an even number");
  yaml.add("activation", name);
  yaml.add("bias_gelu_fusion", m.activation == Activation::kGeluTanh);
  yaml.add("intermediate_size", m.gated ? 3 * m.intermediate : m.intermediate);
  yaml.add("use_bias_in_mlp", m.mlp_bias);
}

void add_experts(Yaml& yaml, const ModelConfig& m) {
  if (!m.moe) return;
  check_usage(m.moe->intermediate == m.intermediate, "the experts are ", m.moe->intermediate,
              " wide and MLPs ", m.intermediate, ", of which GPT-NeoX can say only one");
  yaml.add("moe_num_experts", m.moe->experts);
  yaml.add("moe_top_k", m.moe->top_k);
  yaml.add("moe_expert_interval", m.moe->interval);
  yaml.add("moe_router_type", m.moe->router == Router::kTopK ? "topk" : "sinkhorn");
}

void add_positions(Yaml& yaml, const ModelConfig& m) {
  for (const PositionKey& p : kPositions)
    if (p.kind == m.position_embedding) yaml.add("pos_emb", p.name);
  if (m.position_embedding == PositionEmbedding::kRotary) {
    check_usage(m.rotary_base == std::floor(m.rotary_base),
                "GPT-NeoX's rotary_emb_base is a whole ", "number; the model's is ", m.rotary_base);
    yaml.add("rotary_pct", m.rotary_pct);
    yaml.add("rotary_emb_base", static_cast<int64_t>(m.rotary_base));
  }
  if (m.position_embedding == PositionEmbedding::kRelative) {
    yaml.add("rpe_num_buckets", m.rpe_buckets);
    yaml.add("rpe_max_distance", m.rpe_max_distance);
  }
}

}  // namespace

std::string neox_yaml(const Config& config, const NeoxLayout& layout, int64_t vocab_multiple) {
  const ModelConfig& m = config.model;
  check_neox_has(m);
  Yaml yaml;
  yaml.add("num_layers", m.layers);
  yaml.add("hidden_size", m.hidden);
  yaml.add("num_attention_heads", m.heads);
  if (m.groups() != m.heads) yaml.add("num_kv_heads", m.groups());
  yaml.add("seq_length", m.seq);
  yaml.add("max_position_embeddings", m.positions);
  add_positions(yaml, m);
  yaml.add("norm", norm_name(m));
  yaml.add(norm_epsilon_key(m), m.norm_eps);
  yaml.add("gpt_j_residual", m.parallel_residual);
  yaml.add("gpt_j_tied", m.tied_norms);
  yaml.add("no_weight_tying", !m.tied_embedding);
  yaml.add("use_bias_in_attn_linear", m.attention_bias);
  add_mlp(yaml, m);
  add_experts(yaml, m);
  if (m.window > 0) yaml.add("sliding_window_width", m.window);
  yaml.add("hidden_dropout", m.hidden_dropout);
  yaml.add("attention_dropout", m.attention_dropout);
  yaml.add("init_method_std", m.init_std);
  yaml.add("make_vocab_size_divisible_by", vocab_multiple);
  yaml.add("model_parallel_size", layout.tensor);
  yaml.add("pipe_parallel_size", layout.pipe);
  return yaml.text();
}

}  // namespace neox
