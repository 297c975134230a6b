#include "convert/megatron_args.h"

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace neox {
namespace {

using torchfile::Kind;
using torchfile::Value;
using Json = nlohmann::json;

// Of a number of BigScience's enum, as options spell it; null for another object.
Json position_name(Value value) {
  static constexpr const char* kNames[] = {"rotary", "absolute", "alibi"};
  std::optional<Value> number = value.arguments().find("0");
  bool is = value.type() == "megatron.enums.PositionEmbeddingType" && number &&
            number->is(Kind::kInt) && number->as_int() >= 1 && number->as_int() <= 3;
  return is ? Json(kNames[number->as_int() - 1]) : Json();
}

// What is no number, text, truth value or list of these is the name of its kind in a list of one.
Json json_of(Value value) {
  switch (value.kind()) {
    case Kind::kObject:
      if (Json name = position_name(value); !name.is_null()) return name;
      return {{"kind", std::string(torchfile::kind_name(value.kind()))}};
    case Kind::kNone:
      return nullptr;
    case Kind::kBool:
      return value.as_bool();
    case Kind::kInt:
      return value.as_int();
    case Kind::kFloat:
      return value.as_float();
    case Kind::kString:
      return std::string(value.text());
    case Kind::kList:
    case Kind::kTuple: {
      Json items = Json::array();
      for (Value item : value.items()) items.push_back(json_of(item));
      return items;
    }
    default:
      return {{"kind", std::string(torchfile::kind_name(value.kind()))}};
  }
}

std::string show(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return value["kind"].get<std::string>();
  if (!value.is_array()) return value.dump();
  std::vector<std::string> items;
  for (const Json& item : value) items.push_back(show(item));
  return "[" + join(items, ", ") + "]";
}

// What a field has where the feature is off.
bool is_nothing(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  return value.is_string() && value.get<std::string>().empty();
}

struct Unsupported {
  const char* name;
  const char* also = "";  // a value that is not the feature either
};

constexpr Unsupported kUnsupported[] = {{"activation_func_clamp_value"},
                                        {"apply_layernorm_1p"},
                                        {"apply_residual_connection_post_layernorm"},
                                        {"attention_output_gate"},
                                        {"enable_mhc_connections"},
                                        {"experimental_attention_variant"},
                                        {"glu_activation"},
                                        {"glu_linear_offset"},
                                        {"heterogeneous_layers_config_encoded_json"},
                                        {"heterogeneous_layers_config_path"},
                                        {"hybrid_attention_ratio"},
                                        {"hybrid_layer_pattern"},
                                        {"hybrid_override_pattern"},
                                        {"is_hybrid_model"},
                                        {"layernorm_zero_centered_gamma"},
                                        {"linear_attention_freq"},
                                        {"mtp_num_layers"},
                                        {"multi_latent_attention"},
                                        {"no_rope_freq"},
                                        {"num_experts", "[1]"},
                                        {"num_experts_switch"},
                                        {"prefixlm"},
                                        {"qk_l2_norm"},
                                        {"quick_geglu"},
                                        {"retro_add_retriever"},
                                        {"rope_type", "rope"},
                                        {"rotary_interleaved"},
                                        {"rotary_scaling_factor", "1.0"},
                                        {"softmax_scale"},
                                        {"softmax_type", "vanilla"},
                                        {"spec"},
                                        {"squared_relu"},
                                        {"use_alibi_position_embeddings"},
                                        {"use_mup"},
                                        {"window_attn_skip_freq"}};

void check_supported(const MegatronArgs& args) {
  for (const Unsupported& u : kUnsupported) {
    const Json* value = args.find(u.name);
    check_io(!value || is_nothing(*value) || show(*value) == u.also, args.where(), ": args.",
             u.name, " is ", value ? show(*value) : "", ", which is not supported");
  }
}

class Yaml {
 public:
  template <class T>
  void add(const char* key, const T& value) {
    text_ += concat(key, ": ", Json(value).dump(), "\n");
  }
  void copy(const MegatronArgs& args, const char* from, const char* key, double fallback) {
    add(key, args.number(from, fallback));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_shape(const MegatronArgs& args, Yaml& yaml) {
  int64_t hidden = args.integer("hidden_size"), heads = args.integer("num_attention_heads");
  int64_t layers = args.maybe_integer("num_layers").value_or(0);
  yaml.add("num_layers", layers ? layers : args.integer("encoder_num_layers"));
  yaml.add("hidden_size", hidden);
  yaml.add("num_attention_heads", heads);
  auto channels = args.maybe_integer("kv_channels");
  if (channels && *channels * heads != hidden) yaml.add("kv_channels", *channels);
  bool grouped = args.flag("group_query_attention", false);
  auto groups = args.maybe_integer(grouped ? "num_query_groups" : "num_key_value_heads");
  if (groups) yaml.add("num_kv_heads", *groups);
  bool gated = args.flag("swiglu", false);
  int64_t inner = args.maybe_integer("ffn_hidden_size").value_or(4 * hidden);
  yaml.add("intermediate_size", gated ? 3 * inner : inner);
  int64_t positions =
      args.integer(args.has("max_position_embeddings") ? "max_position_embeddings" : "seq_length");
  yaml.add("max_position_embeddings", positions);
  yaml.add("seq_length", args.maybe_integer("seq_length").value_or(positions));
}

void add_rotary(const MegatronArgs& args, Yaml& yaml) {
  yaml.copy(args, "rotary_percent", "rotary_pct", 1);
  yaml.copy(args, args.has("rotary_base") ? "rotary_base" : "rope_theta", "rotary_emb_base", 10000);
  double interpolation = args.number("rotary_seq_len_interpolation_factor", 1);
  bool llama3 = args.flag("use_rope_scaling", false), linear = interpolation != 1;
  check_io(!llama3 || !linear, args.where(),
           ": args.use_rope_scaling and args.rotary_seq_len_interpolation_factor together are not "
           "supported");
  if (linear) yaml.add("rope_scaling", Json{{"rope_type", "linear"}, {"factor", interpolation}});
  if (!llama3) return;
  yaml.add("rope_scaling", Json{{"rope_type", "llama3"},
                                {"factor", args.number("rope_scaling_factor", 8)},
                                {"low_freq_factor", 1},
                                {"high_freq_factor", 4},
                                {"original_max_position_embeddings", 8192}});
}

// Our pos_emb. Without position_embedding_type, two switches say the same, and both may be on.
std::string position_embedding(const MegatronArgs& args) {
  bool rotary = args.flag("use_rotary_position_embeddings", false);
  if (args.has("position_embedding_type")) {
    static const std::map<std::string, const char*> kNames = {
        {"absolute", "learned"}, {"alibi", "alibi"}, {"learned_absolute", "learned"},
        {"none", "none"},        {"rope", "rotary"}, {"rotary", "rotary"}};
    auto found = kNames.find(rotary ? "rope" : args.text("position_embedding_type", ""));
    check_io(found != kNames.end(), args.where(), ": args.position_embedding_type is ",
             args.text("position_embedding_type", ""),
             "; supported are learned_absolute (absolute), rope (rotary), alibi and none");
    return found->second;
  }
  bool learned = args.flag("add_position_embedding", true);
  check_io(!rotary || !learned, args.where(),
           ": args.use_rotary_position_embeddings and args.add_position_embedding are both true; "
           "learned and rotary positions together are not supported");
  return rotary ? "rotary" : learned ? "learned" : "none";
}

void add_positions(const MegatronArgs& args, Yaml& yaml) {
  std::string type = position_embedding(args);
  yaml.add("pos_emb", type);
  if (type == "rotary") add_rotary(args, yaml);
  const Json* window = args.find("window_size");
  if (!window) return;
  bool causal = window->is_array() && window->size() == 2 && (*window)[0].is_number_integer() &&
                (*window)[1].is_number_integer() && (*window)[1] <= 0;
  check_io(causal, args.where(), ": args.window_size is ", show(*window),
           "; supported is [tokens, 0]");
  if ((*window)[0] >= 0) yaml.add("sliding_window_width", (*window)[0]);
}

void add_norms(const MegatronArgs& args, Yaml& yaml) {
  std::string norm = args.text("normalization", "LayerNorm");
  bool rms = norm == "RMSNorm" || norm == "rmsnorm";
  check_io(rms || norm == "LayerNorm" || norm == "layernorm", args.where(),
           ": args.normalization is ", norm, "; supported are LayerNorm and RMSNorm");
  yaml.add("norm", rms ? "rmsnorm" : "layernorm");
  yaml.copy(args, args.has("norm_epsilon") ? "norm_epsilon" : "layernorm_epsilon",
            rms ? "rms_norm_epsilon" : "layernorm_epsilon", 1e-5);
  yaml.add("use_qk_layernorm", args.flag("qk_layernorm", false));
  if (!args.flag("embed_layernorm", false)) return;
  double epsilon = args.number("layernorm_epsilon", kEmbeddingNormEpsilon);
  check_io(epsilon == kEmbeddingNormEpsilon, args.where(), ": args.layernorm_epsilon is ", epsilon,
           ", but that of args.embed_layernorm is always ", kEmbeddingNormEpsilon,
           "; that they differ is not supported");
  yaml.add("embed_layernorm", true);
}

// Megatron's fusion of bias and GELU is of the tanh formula, and only there where a bias is.
void add_mlp(const MegatronArgs& args, Yaml& yaml) {
  bool bias = args.flag("add_bias_linear", !args.flag("disable_bias_linear", false));
  yaml.add("use_bias_in_attn_linear", bias);
  yaml.add("use_bias_in_mlp", bias);
  if (!bias) yaml.add("add_qkv_bias", args.flag("add_qkv_bias", false));
  bool gated = args.flag("swiglu", false);
  yaml.add("activation", gated ? "swiglu" : "gelu");
  bool fused = bias && args.flag("bias_gelu_fusion", true) && !args.flag("onnx_safe", false);
  yaml.add("bias_gelu_fusion", !gated && (fused || args.flag("openai_gelu", false)));
}

// The tokenizer's files where they still are.
void add_tokenizer_files(const MegatronArgs& args, Yaml& yaml) {
  std::string vocab = args.text("vocab_file", ""), merges = args.text("merge_file", "");
  bool gpt2 = args.text("tokenizer_type", "") == "GPT2BPETokenizer" && fs::exists(vocab) &&
              fs::exists(merges);
  if (!gpt2) return;
  yaml.add("tokenizer_type", "GPT2BPETokenizer");
  yaml.add("vocab_file", vocab);
  yaml.add("merge_file", merges);
}

}  // namespace

MegatronArgs::MegatronArgs(Value args, std::string where)
    : args_(Json::object()), where_(std::move(where)) {
  bool known = args.is(Kind::kObject) || args.is(Kind::kDict);
  check_io(known, where_, ": args is ", torchfile::kind_name(args.kind()),
           "; an argparse.Namespace says what the model is");
  Value fields = args.is(Kind::kObject) ? args.state() : args;
  for (const torchfile::Entry& field : fields.entries())
    if (field.key.is(Kind::kString)) args_[std::string(field.key.text())] = json_of(field.value);
}

const Json* MegatronArgs::find(const char* name) const {
  auto found = args_.find(name);
  return found == args_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> MegatronArgs::maybe_integer(const char* name) const {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  check_io(value->is_number_integer(), where_, ": args.", name, " is ", show(*value),
           ", not an integer");
  return value->get<int64_t>();
}

int64_t MegatronArgs::integer(const char* name) const {
  std::optional<int64_t> value = maybe_integer(name);
  check_io(value.has_value() && *value > 0 && *value < 1 << 30, where_, ": args.", name, " is ",
           value ? std::to_string(*value) : "missing", "; it must be a positive number");
  return *value;
}

double MegatronArgs::number(const char* name, double fallback) const {
  const Json* value = find(name);
  bool right = !value || value->is_number();
  check_io(right, where_, ": args.", name, " is ", value ? show(*value) : "", ", not a number");
  return value ? value->get<double>() : fallback;
}

bool MegatronArgs::flag(const char* name, bool fallback) const {
  const Json* value = find(name);
  check_io(!value || value->is_boolean(), where_, ": args.", name, " is ",
           value ? show(*value) : "", ", neither True nor False");
  return value ? value->get<bool>() : fallback;
}

std::string MegatronArgs::text(const char* name, const std::string& fallback) const {
  const Json* value = find(name);
  check_io(!value || value->is_string(), where_, ": args.", name, " is ", value ? show(*value) : "",
           ", not a text");
  return value ? value->get<std::string>() : fallback;
}

std::string megatron_yaml(const MegatronArgs& args) {
  check_supported(args);
  Yaml yaml;
  add_shape(args, yaml);
  add_positions(args, yaml);
  add_norms(args, yaml);
  add_mlp(args, yaml);
  add_tokenizer_files(args, yaml);
  yaml.add("no_weight_tying", args.flag("untie_embeddings_and_output_weights", false));
  yaml.copy(args, "hidden_dropout", "hidden_dropout", 0.1);
  yaml.copy(args, "attention_dropout", "attention_dropout", 0.1);
  yaml.copy(args, "init_method_std", "init_method_std", 0.02);
  return yaml.text();
}

}  // namespace neox
