// The MLP of the model, and its experts.
#include <map>

#include "base/text.h"
#include "config/build.h"

namespace neox {
namespace {

struct NamedActivation {
  Activation function;
  bool gated = false;
};

NamedActivation named_activation(const std::string& name, bool tanh) {
  using enum Activation;
  static const std::map<std::string, NamedActivation> kNames = {{"gelu", {kGeluErf}},
                                                                {"relu", {kRelu}},
                                                                {"silu", {kSilu}},
                                                                {"swish", {kSilu}},
                                                                {"softsign", {kSoftsign}},
                                                                {"mish", {kMish}},
                                                                {"geglu", {kGeluErf, true}},
                                                                {"reglu", {kRelu, true}},
                                                                {"swiglu", {kSilu, true}},
                                                                {"glu", {kSigmoid, true}},
                                                                {"bilinear", {kIdentity, true}}};
  return tanh && name == "gelu" ? NamedActivation{kGeluTanh} : kNames.at(name);
}

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

constexpr int64_t kMostWide = 1 << 24;

// NeoX's rule (ParallelMLP): two thirds of intermediate_size are shared out over gate and up; both
// are rounded up to mlp_multiple_of.
void read_width(KeyReader& keys, ModelConfig& model) {
  bool absent = !keys.maybe_integer("intermediate_size");
  std::optional<double> factor = keys.maybe_number("expansion_factor");
  keys.require(!factor || *factor > 0, "expansion_factor", "expansion_factor is ",
               factor.value_or(0), "; it must be positive");
  double wide = factor.value_or(4) * static_cast<double>(model.hidden);
  const std::string origin = factor ? "expansion_factor" : "hidden_size";
  bool asked = absent || factor;
  keys.require(!asked || (wide >= 1 && wide <= kMostWide), origin, origin, " makes the MLP ",
               shortest(wide), " wide; it may be 1 to ", kMostWide);
  int64_t usual = asked ? static_cast<int64_t>(wide) : 0;
  int64_t given = absent ? usual : keys.integer_from("intermediate_size", 1, kMostWide);
  keys.require(!factor || given == usual, "expansion_factor", "expansion_factor ",
               factor.value_or(0), " makes the MLP ", usual, " wide, and intermediate_size (",
               keys.where("intermediate_size"), ") ", given, "; remove one");
  if (absent) keys.derive("intermediate_size", std::to_string(given), origin);
  int64_t multiple = keys.integer_from("mlp_multiple_of", 1, 1 << 20);
  int64_t inputs = model.gated ? given * 2 / 3 : given;
  model.intermediate = round_up(model.gated ? inputs / 2 : inputs, multiple);
  bool fits = round_up(inputs, 2 * multiple) == model.mlp_inputs();
  if (!model.gated) fits = multiple == 1 || fits;
  keys.require(fits && model.intermediate > 0, absent ? origin : "intermediate_size",
               "intermediate_size ", given, absent ? concat(" (of ", origin, ")") : "",
               " with mlp_multiple_of ", multiple, " (", keys.where("mlp_multiple_of"), ") makes ",
               inputs, " columns, which do not share out; write ",
               absent ? "intermediate_size, " : "",
               model.gated ? std::string("three times the width that is meant")
                           : concat("a multiple of ", 2 * multiple));
  if (absent && keys.choice("activation") == "swiglu")
    keys.note(concat("intermediate_size is not given, so the gated MLP is ", model.intermediate,
                     " wide; files of GPT-NeoX before 2024 meant twice that, as LLaMA has it"));
}

// LLaMAParallelMLP of GPT-NeoX until September 2024: gate and up without biases, of the width that
// intermediate_size says; in today's keys.
void read_llama_mlp(KeyReader& keys, ModelConfig& model) {
  std::string activation = keys.choice("activation"), from = "mlp_type: llama";
  keys.require(
      activation == "silu" || activation == "swish", "mlp_type",
      "mlp_type: llama is supported with activation: silu, and it is ", activation, " (",
      keys.where("activation"),
      "); write the gated activation that is meant (geglu, reglu, swiglu), three times the "
      "width as intermediate_size, use_bias_in_mlp: false, and no mlp_type");
  keys.require(keys.integer("moe_num_experts") == 1, "mlp_type",
               "mlp_type: llama does not go with moe_num_experts (", keys.where("moe_num_experts"),
               "); remove one");
  bool absent = !keys.maybe_integer("intermediate_size");
  model.intermediate = absent ? round_up(8 * model.hidden / 3, 256)
                              : keys.integer_from("intermediate_size", 1, 1 << 24);
  model.activation = Activation::kSilu;
  model.gated = true;
  model.mlp_bias = false;
  int64_t today = 3 * model.intermediate;
  keys.derive("activation", "swiglu", from);
  keys.derive("intermediate_size", std::to_string(today), absent ? from + ", hidden_size" : from);
  keys.derive("use_bias_in_mlp", "false", from);
  keys.note(concat("mlp_type: llama (", keys.where("mlp_type"),
                   ") is today's activation: swiglu, intermediate_size: ", today, " (3 x ",
                   model.intermediate, ") and use_bias_in_mlp: false"));
}

}  // namespace

void read_mlp(KeyReader& keys, ModelConfig& model) {
  bool llama = keys.choice("mlp_type") == "llama";
  keys.record_input("mlp_type");
  if (llama) return read_llama_mlp(keys, model);
  bool engine = keys.flag("te_layernorm_mlp");
  bool tanh = keys.flag("bias_gelu_fusion") || engine;
  keys.require(!tanh || !keys.flag("onnx_safe"), "onnx_safe", "onnx_safe and bias_gelu_fusion (",
               keys.where("bias_gelu_fusion"),
               ") exclude each other, as in NeoX; set one of them to false");
  keys.record_input("onnx_safe");
  if (engine) keys.derive("bias_gelu_fusion", "true", "te_layernorm_mlp");
  if (tanh && keys.choice("activation") != "gelu") keys.mark("bias_gelu_fusion", Effect::kNone);
  NamedActivation activation = named_activation(keys.choice("activation"), tanh);
  model.activation = activation.function;
  model.gated = activation.gated;
  model.mlp_bias = keys.flag("use_bias_in_mlp");
  read_width(keys, model);
}

// GPT-NeoX's SinkhornRouter does not look at it.
void check_jitter(KeyReader& keys, Router router) {
  const std::string key = "moe_jitter_eps";
  double noise = keys.maybe_number(key).value_or(0);
  keys.require(router == Router::kSinkhorn || noise == 0, key, key, " ", shortest(noise),
               " is not supported yet (noise in the router's input, with moe_router_type: topk, ",
               keys.where("moe_router_type"), "); remove the key");
  if (keys.given(key)) keys.mark(key, Effect::kNone);
}

// NeoX's ParallelGroupedMLP rounds a width that is not given up to a multiple of 256.
std::optional<MoeConfig> read_moe(KeyReader& keys, const ModelConfig& model) {
  MoeConfig moe;
  moe.experts = keys.integer_from("moe_num_experts", 1, 1 << 16);
  if (moe.experts == 1) return std::nullopt;
  moe.top_k = keys.integer_from("moe_top_k", 1, 1 << 16);
  keys.require(moe.top_k <= moe.experts, "moe_top_k", "moe_top_k is ", moe.top_k,
               ", more than moe_num_experts ", moe.experts, " (", keys.where("moe_num_experts"),
               ")");
  moe.interval = keys.integer_from("moe_expert_interval", 1, 1 << 16);
  moe.router = keys.choice("moe_router_type") == "topk" ? Router::kTopK : Router::kSinkhorn;
  check_jitter(keys, moe.router);
  moe.normalized = keys.flag("moe_normalize_expert_weights");
  keys.require(
      !moe.normalized || moe.top_k > 1, "moe_normalize_expert_weights",
      "moe_normalize_expert_weights: true makes 1 of the only weight of a token, and nothing "
      "trains the router (",
      keys.where("moe_top_k"), "); set moe_top_k to more than 1");
  keys.require(!keys.maybe_number("expansion_factor"), "expansion_factor",
               "expansion_factor does not go with moe_num_experts ", moe.experts, " (",
               keys.where("moe_num_experts"),
               "); write the width of an expert as intermediate_size");
  bool given = keys.maybe_integer("intermediate_size").has_value();
  moe.intermediate = given ? model.intermediate : round_up(model.intermediate, 256);
  if (model.parallel_residual)
    keys.note(
        "experts run beside attention (gpt_j_residual), and both count; GPT-NeoX loses what "
        "attention gives there");
  if (model.gated)
    keys.note(concat("the experts are gated (activation: ", keys.choice("activation"),
                     "); GPT-NeoX's never are"));
  keys.require(!model.mup, "moe_num_experts", "moe_num_experts ", moe.experts,
               " does not go with use_mup (", keys.where("use_mup"),
               "): how a router's values grow with the width is not known here");
  return moe;
}

}  // namespace neox
