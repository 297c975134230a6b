#include "convert/gpt_neox_hf.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "convert/hf_fields.h"

namespace neox {
namespace {

using Json = nlohmann::json;

struct ActivationName {
  const char* name;
  Activation activation;
};

// The first of each kind is written. The other names are of the same formula.
constexpr ActivationName kActivations[] = {{"gelu", Activation::kGeluErf},
                                           {"gelu_new", Activation::kGeluTanh},
                                           {"gelu_fast", Activation::kGeluTanh},
                                           {"gelu_pytorch_tanh", Activation::kGeluTanh}};

Activation activation_of(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const ActivationName& a : kActivations) {
    if (a.name == name) return a.activation;
    names.push_back(a.name);
  }
  fail(Exit::kIo, where, ": hidden_act is ", name, "; supported are ", join(names, ", "));
}

struct Rotary {
  double pct = 0.25, base = 10000;  // transformers' defaults
};

// A value that several fields may give: the names of old and new versions of transformers.
void agree(std::optional<double>& value, const std::optional<double>& given, const char* name,
           const std::string& where) {
  if (!given) return;
  check_io(!value || *value == *given, where, ": ", name, " is ", *given,
           ", but another field gives ", value.value_or(0));
  value = given;
}

Rotary read_rotary(HfFields& fields) {
  std::optional<double> pct, base;
  for (const char* name : {"rotary_pct", "partial_rotary_factor"})
    agree(pct, fields.maybe_number(name), name, fields.where());
  for (const char* name : {"rotary_emb_base", "rope_theta"})
    agree(base, fields.maybe_number(name), name, fields.where());
  for (const char* dictionary : {"rope_parameters", "rope_scaling"}) {
    Json inner = fields.take(dictionary);
    if (inner.is_null()) continue;
    HfFields rope(inner, concat(fields.where(), ": ", dictionary));
    for (const char* name : {"rope_type", "type"}) {
      std::string type = rope.text(name, "default");
      check_io(type == "default", rope.where(), ".", name, " is ", type,
               "; only default is supported");
    }
    agree(pct, rope.maybe_number("partial_rotary_factor"), "partial_rotary_factor", rope.where());
    agree(base, rope.maybe_number("rope_theta"), "rope_theta", rope.where());
    rope.finish();
  }
  return {pct.value_or(Rotary().pct), base.value_or(Rotary().base)};
}

void check_kind(HfFields& fields) {
  std::string type = fields.text("model_type", "");
  check_io(type == "gpt_neox", fields.where(), ": model_type is ", type,
           "; supported is gpt_neox (GPTNeoXForCausalLM)");
  Json names = fields.take("architectures");
  bool right = names.is_null() || names == Json::array({"GPTNeoXForCausalLM"});
  check_io(right, fields.where(), ": architectures is ", names.dump(),
           "; supported is GPTNeoXForCausalLM");
  check_io(fields.flag("attention_bias", true), fields.where(),
           ": attention_bias is false, which is not supported");
}

constexpr const char* kHead = "embed_out.weight";

}  // namespace

std::string gpt_neox_yaml(const Json& config, const std::string& where) {
  HfFields fields(config, where);
  check_kind(fields);
  std::string yaml;
  auto add = [&](const char* key, const auto& value) {
    yaml += concat(key, ": ", Json(value).dump(), "\n");
  };
  add("num_layers", fields.integer("num_hidden_layers", 44));
  add("hidden_size", fields.integer("hidden_size", 6144));
  add("num_attention_heads", fields.integer("num_attention_heads", 64));
  add("intermediate_size", fields.integer("intermediate_size", 24576));
  int64_t positions = fields.integer("max_position_embeddings", 2048);
  add("max_position_embeddings", positions);
  add("seq_length", positions);
  add("padded_vocab_size", fields.integer("vocab_size", 50432));
  add("pos_emb", "rotary");
  Rotary rotary = read_rotary(fields);
  add("rotary_pct", rotary.pct);
  add("rotary_emb_base", rotary.base);
  add("layernorm_epsilon", fields.number("layer_norm_eps", 1e-5));
  add("gpt_j_residual", fields.flag("use_parallel_residual", true));
  add("no_weight_tying", !fields.flag("tie_word_embeddings", false));
  Activation activation = activation_of(fields.text("hidden_act", "gelu"), where);
  add("bias_gelu_fusion", activation == Activation::kGeluTanh);
  add("hidden_dropout", fields.number("hidden_dropout", 0));
  add("attention_dropout", fields.number("attention_dropout", 0));
  add("init_method_std", fields.number("initializer_range", 0.02));
  fields.finish();
  return yaml;
}

nlohmann::ordered_json gpt_neox_json(const ModelConfig& model, const std::string& dtype) {
  check_usage(model.position_embedding == PositionEmbedding::kRotary,
              "the model has no rotary positions, as GPTNeoXForCausalLM must have");
  const char* activation = nullptr;
  for (const ActivationName& a : kActivations)
    if (a.activation == model.activation && !activation) activation = a.name;
  check_usage(activation != nullptr, "GPTNeoXForCausalLM does not have the model's activation");
  return {{"architectures", nlohmann::ordered_json::array({"GPTNeoXForCausalLM"})},
          {"model_type", "gpt_neox"},
          {"attention_bias", true},
          {"attention_dropout", model.attention_dropout},
          {"hidden_act", activation},
          {"hidden_dropout", model.hidden_dropout},
          {"hidden_size", model.hidden},
          {"initializer_range", model.init_std},
          {"intermediate_size", model.intermediate},
          {"layer_norm_eps", model.norm_eps},
          {"max_position_embeddings", model.positions},
          {"num_attention_heads", model.heads},
          {"num_hidden_layers", model.layers},
          {"rotary_emb_base", model.rotary_base},
          {"rotary_pct", model.rotary_pct},
          {"tie_word_embeddings", model.tied_embedding},
          {"torch_dtype", dtype},
          {"use_cache", true},
          {"use_parallel_residual", model.parallel_residual},
          {"vocab_size", model.vocab}};
}

std::vector<std::string> gpt_neox_names(const std::string& ours) {
  if (ours == kHead) return {kHead, "lm_head.weight"};
  return {"gpt_neox." + ours};
}

std::string gpt_neox_ignores(const std::string& theirs, bool tied) {
  if (tied && std::ranges::count(gpt_neox_names(kHead), theirs) > 0) return "tied to embed_in";
  if (!theirs.starts_with("gpt_neox.layers.")) return "";
  struct Rule {
    const char* end;
    const char* reason;
  };
  constexpr Rule kRules[] = {{".attention.bias", "the causal mask, a constant"},
                             {".attention.masked_bias", "a constant of the mask"},
                             {".attention.rotary_emb.inv_freq", "follows from rotary_emb_base"},
                             {".rotary_emb.inv_freq", "follows from rotary_emb_base"}};
  for (const Rule& rule : kRules)
    if (theirs.ends_with(rule.end)) return rule.reason;
  return "";
}

}  // namespace neox
