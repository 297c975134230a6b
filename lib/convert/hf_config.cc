// config.json of the families, there and back.
#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/architecture.h"
#include "convert/hf_family.h"
#include "convert/hf_fields.h"
#include "convert/hf_rotary.h"
#include "model/parameters.h"

namespace neox {
namespace {

using Json = nlohmann::json;
using Keys = std::map<std::string, Json>;

struct ActivationName {
  const char* name;
  Activation activation;
  const char *plain, *gated;  // our key `activation`; "" where we have none
};

// The first of each kind is written. The other names are of the same formula.
constexpr ActivationName kActivations[] = {{"gelu", Activation::kGeluErf, "gelu", "geglu"},
                                           {"gelu_new", Activation::kGeluTanh, "gelu", ""},
                                           {"gelu_fast", Activation::kGeluTanh, "gelu", ""},
                                           {"gelu_pytorch_tanh", Activation::kGeluTanh, "gelu", ""},
                                           {"relu", Activation::kRelu, "relu", "reglu"},
                                           {"silu", Activation::kSilu, "silu", "swiglu"},
                                           {"swish", Activation::kSilu, "silu", "swiglu"},
                                           {"mish", Activation::kMish, "mish", ""},
                                           {"sigmoid", Activation::kSigmoid, "", "glu"},
                                           {"linear", Activation::kIdentity, "", "bilinear"}};

std::string key_of(const ActivationName& a, bool gated) { return gated ? a.gated : a.plain; }

void add_activation(const HfFamily& family, HfFields& fields, Keys& keys) {
  std::string name = family.activation;
  if (family.activation_field) name = fields.text(family.activation_field, name);
  std::vector<std::string> names;
  for (const ActivationName& a : kActivations) {
    std::string key = key_of(a, family.gated);
    if (key.empty()) continue;
    names.push_back(a.name);
    if (name != a.name) continue;
    keys["activation"] = key;
    keys["bias_gelu_fusion"] = a.activation == Activation::kGeluTanh;
    return;
  }
  fail(Exit::kIo, fields.where(), ": ", family.activation_field, " is ", name, "; supported are ",
       join(names, ", "));
}

// The family's own name of the formula, or the first that there is.
const char* activation_name(const HfFamily& family, const ModelConfig& model) {
  const char* first = nullptr;
  for (const ActivationName& a : kActivations) {
    if (a.activation != model.activation || key_of(a, family.gated).empty()) continue;
    if (family.activation == std::string_view(a.name)) return a.name;
    if (!first) first = a.name;
  }
  return first;
}

Json member_of(const ModelConfig& model, const HfField& field) {
  Json value = std::visit(
      [&](auto member) -> Json {
        if constexpr (std::is_member_function_pointer_v<decltype(member)>)
          return (model.*member)();
        else
          return model.*member;
      },
      field.member);
  if (field.form == HfField::kOneGroup) return value == 1;
  if (field.form != HfField::kOneLess) return value;
  return model.window > 0 ? Json(value.get<int64_t>() + 1) : Json();
}

void check_type(const HfField& field, const Json& value, const std::string& where) {
  constexpr int64_t kMost = int64_t{1} << 40;
  bool real = std::holds_alternative<double ModelConfig::*>(field.member);
  bool flag =
      std::holds_alternative<bool ModelConfig::*>(field.member) || field.form == HfField::kOneGroup;
  bool fits = flag ? value.is_boolean() : real ? value.is_number() : value.is_number_integer();
  check_io(fits, where, ": ", field.theirs, " is ", value.dump(), ", not ",
           flag   ? "true or false"
           : real ? "a number"
                  : "an integer");
  check_io(flag || real || (value >= 0 && value <= kMost), where, ": ", field.theirs, " is ",
           value.dump(), "; it must be at least 0 and at most ", kMost);
}

// The field's value, or what its absence stands for; null where the key is not to be given.
Json value_of(HfFields& fields, const HfField& field) {
  bool none = fields.has(field.theirs) && field.null == HfField::kNone;
  Json value = fields.take(field.theirs);
  if (value.is_null() && !none) value = Json::parse(field.absent);
  if (!value.is_null()) check_type(field, value, fields.where());
  return value;
}

// Null where it is not to be given.
Json key_value(const HfField& field, const Json& value, const std::string& where) {
  switch (field.form) {
    case HfField::kPlain:
      return value;
    case HfField::kTripled:
      return 3 * value.get<int64_t>();
    case HfField::kNot:
      return !value.get<bool>();
    case HfField::kOneGroup:
      return value.get<bool>() ? Json(1) : Json();
    case HfField::kOneLess:
    case HfField::kSeveral:
      break;
  }
  check_io(value > 1, where, ": ", field.theirs, " is ", value.dump(),
           ", which is not supported; it must be at least 2");
  return value.get<int64_t>() - (field.form == HfField::kOneLess ? 1 : 0);
}

// What the keys in a message are called by Hugging Face.
std::string their_names(const HfFamily& family, std::string_view message) {
  std::map<std::string, std::string> names = {{"rotary_emb_base", "rope_theta"}};
  for (const HfField& field : family.fields)
    for (const std::string& key : split(field.key ? field.key : field.theirs, '|'))
      if (key != field.theirs)
        names[key] = concat(field.theirs, field.absent == std::string_view("null")
                                              ? ""
                                              : concat(" (", field.absent, " where absent)"));
  std::string said;
  for (const auto& [key, theirs] : names)
    if (message.find(key) != message.npos) said += concat("; ", key, " is its ", theirs);
  return said;
}

// A run of one step: what a configuration must say beside the model.
Config config_with(const HfFamily& family, const Keys& keys, const std::string& where) {
  std::string yaml = family.yaml;
  for (const auto& [key, value] : keys) yaml += concat(key, ": ", value.dump(), "\n");
  yaml += "train_iters: 1\ntrain_micro_batch_size_per_gpu: 1\n";
  try {
    return load_config({.texts = {{where + ", as GPT-NeoX's keys", yaml}}});
  } catch (const Error& e) { fail(Exit::kIo, e.what(), their_names(family, e.what())); }
}

// Whether layers see their window alone, where they say it one by one: all do, or none.
void read_layer_types(HfFields& fields, Keys& keys) {
  const std::string window = "sliding_window_width";
  Json types = fields.take("layer_types");
  if (types.empty()) return;
  for (const Json& type : types) {
    bool known = type == "full_attention" || (type == "sliding_attention" && keys.contains(window));
    check_io(known && type == types[0], fields.where(), ": layer_types holds ", type.dump(),
             known ? concat(" and ", types[0].dump(), "; layers of both kinds are not supported")
                   : ", which is not supported");
  }
  if (types[0] == "full_attention") keys.erase(window);
}

std::string option_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// What two models may differ in, by our keys.
Json options_of(const ModelConfig& m) {
  constexpr const char* kPositions[] = {"rotary", "none", "learned", "sinusoidal", "alibi", "rpe"};
  constexpr const char* kFormulas[] = {"gelu (erf)", "gelu (tanh)", "relu",    "silu",
                                       "softsign",   "mish",        "sigmoid", "identity"};
  return {
      {"pos_emb", kPositions[static_cast<size_t>(m.position_embedding)]},
      {"rotary_pct", m.rotary_pct},
      {"rope_scaling.factor", m.rotary_scaling.factor},
      {"activation", concat(m.gated ? "gated " : "", kFormulas[static_cast<size_t>(m.activation)])},
      {"norm", norm_name(m)},
      {norm_epsilon_key(m), m.norm_eps},
      {"gpt_j_residual", m.parallel_residual},
      {"gpt_j_tied", m.tied_norms},
      {"use_qk_layernorm", m.qk_norm},
      {"embed_layernorm", m.embedding_norm},
      {"use_bias_in_attn_linear", m.attention_bias},
      {"use_bias_in_mlp", m.mlp_bias},
      {"add_qkv_bias", m.qkv_bias},
      {"kv_channels", m.head_size()},
      {"num_kv_heads", m.groups()},
      {"moe_num_experts", m.experts()},
      {"moe_top_k", m.experts_of_token()},
      {"moe_expert_interval", m.moe ? m.moe->interval : 1},
      {"moe_router_type", m.moe && m.moe->router == Router::kTopK ? "topk" : "sinkhorn"},
      {"moe_normalize_expert_weights", m.moe && m.moe->normalized},
      {"sliding_window_width", m.window}};
}

// "FalconForCausalLM (new_decoder_architecture: true, num_ln_in_parallel_attn: 2)"
std::string name_of(const HfFamily& family) {
  std::vector<std::string> words;
  for (const HfChoice& c : family.choices) words.push_back(concat(c.field, ": ", c.value));
  return concat(family.architecture, words.empty() ? "" : concat(" (", join(words, ", "), ")"));
}

// What the family does not have of the model; "" where it has all.
std::string lacks(const HfFamily& family, const ModelConfig& model) {
  ModelConfig there;
  try {
    there = config_of(family, json_of(family, model, "float32"), name_of(family)).model;
  } catch (const Error& e) { return e.what(); }
  if (architecture(there) == architecture(model)) return "";
  Json wanted = options_of(model), found = options_of(there);
  std::vector<std::string> words;
  for (const auto& [key, value] : wanted.items())
    if (value != found[key]) words.push_back(concat(key, ": ", option_text(value)));
  if (words.empty()) words = {architecture(model) + " (but " + architecture(there) + ")"};
  return concat(name_of(family), " has no ", join(words, ", no "));
}

bool has_scores(const HfFamily& family) {
  return std::ranges::find(family.tensors, std::string_view("score"), &HfTensor::ours) !=
         family.tensors.end();
}

// "GPTNeoXForCausalLM" of a model that writes; that of one score is the class for sequences.
std::string architecture_of(const HfFamily& family, const ModelConfig& model) {
  std::string name = family.architecture;
  for (const char* end : {"ForCausalLM", "LMHeadModel"})
    if (model.scores && name.ends_with(end))
      name.replace(name.size() - std::string_view(end).size(), std::string::npos,
                   "ForSequenceClassification");
  return name;
}

// Each of a list once.
void add_once(std::vector<std::string>& texts, std::string text) {
  if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
}

// The value of the field, or what its absence stands for.
Json value_of(const HfChoice& choice, const Json& config) {
  Json value = config.value(choice.field, Json());
  return value.is_null() ? Json::parse(choice.absent) : value;
}

bool is_chosen(const HfFamily& family, const Json& config) {
  return std::ranges::all_of(family.choices, [&](const HfChoice& choice) {
    return value_of(choice, config) == Json::parse(choice.value);
  });
}

}  // namespace

const HfFamily& family_of(const Json& config, const std::string& where) {
  HfFields fields(config, where);
  std::string type = fields.text("model_type", "");
  Json names = fields.take("architectures");
  std::vector<std::string> supported, of_type, found;
  for (const HfFamily& family : hf_families()) {
    add_once(supported, concat(family.type, " (", family.architecture, ")"));
    if (type != family.type) continue;
    bool same = names.is_array() && names.size() == 1 && names[0].is_string() &&
                equal_words(names[0].get<std::string>(), family.architecture);
    check_io(names.is_null() || names == Json::array() || same, where, ": architectures is ",
             names.dump(), "; supported is ", family.architecture,
             names.dump().find("ForSequenceClassification") != std::string::npos
                 ? ": reward models are written, and not read"
                 : "");
    if (is_chosen(family, config)) return family;
    of_type.push_back(name_of(family));
    for (const HfChoice& choice : family.choices)
      add_once(found, concat(choice.field, " is ", config.value(choice.field, Json()).dump()));
  }
  check_io(of_type.empty(), where, ": ", join(found, ", "), "; supported are ",
           join(of_type, ", "));
  fail(Exit::kIo, where, ": model_type is ", type, "; supported are ", join(supported, ", "));
}

Config config_of(const HfFamily& family, const Json& json, const std::string& where) {
  HfFields fields(json, where);
  for (const auto& [alias, name] : family.aliases) fields.rename(alias, name);
  fields.take("model_type");
  fields.take("architectures");
  for (const HfChoice& choice : family.choices) fields.take(choice.field);
  Keys keys;
  std::vector<std::pair<const HfField*, Json>> compared;
  for (const HfField& field : family.fields) {
    Json value = value_of(fields, field);
    if (value.is_null()) continue;
    if (!field.key) {
      compared.emplace_back(&field, value);
      continue;
    }
    Json given = key_value(field, value, where);
    for (const std::string& key : split(field.key, '|'))
      if (!given.is_null()) keys[key] = given;
  }
  keys["seq_length"] = keys.at("max_position_embeddings");
  add_activation(family, fields, keys);
  Json rotary = rotary_keys(family, fields, keys.at("seq_length").get<int64_t>());
  for (const auto& [key, value] : rotary.items()) keys[key] = value;
  auto fixed = family.fixed;
  fixed.emplace_back("is_causal", true);
  for (const auto& [name, value] : fixed)
    check_io(fields.flag(name, value) == value, where, ": ", name, " is ", value ? "false" : "true",
             ", which is not supported");
  read_layer_types(fields, keys);
  fields.finish(family.silent);
  Config config = config_with(family, keys, where);
  for (const auto& [field, value] : compared) {
    Json by_others = member_of(config.model, *field);
    check_io(value == by_others, where, ": ", field->theirs, " is ", value.dump(), ", but ",
             by_others.dump(), " by other fields; that they differ is not supported");
  }
  return config;
}

nlohmann::ordered_json json_of(const HfFamily& family, const ModelConfig& model,
                               const std::string& dtype) {
  nlohmann::ordered_json json = {
      {"architectures", nlohmann::ordered_json::array({architecture_of(family, model)})},
      {"model_type", family.type}};
  if (model.scores) {
    json["id2label"] = {{"0", "LABEL_0"}};
    json["label2id"] = {{"LABEL_0", 0}};
  }
  for (const HfChoice& choice : family.choices)
    json[choice.field] = nlohmann::ordered_json::parse(choice.value);
  for (const HfField& field : family.fields) json[field.theirs] = member_of(model, field);
  const char* activation = activation_name(family, model);
  if (activation && family.activation_field) json[family.activation_field] = activation;
  add_rotary_fields(family.rotary, model, json);
  json["torch_dtype"] = dtype;
  json["use_cache"] = true;
  return json;
}

const HfFamily& family_for(const ModelConfig& of, const std::string& type) {
  ModelConfig model = of;
  model.scores = false;  // no class has it as a field
  std::vector<const HfFamily*> order;
  for (const HfFamily& family : hf_families()) order.push_back(&family);
  std::ranges::stable_partition(order, [&](const HfFamily* f) { return f->type == type; });
  std::vector<std::string> reasons;
  for (const HfFamily* family : order) {
    std::string reason = lacks(*family, model);
    if (reason.empty() && of.scores && !has_scores(*family))
      reason = name_of(*family) + " has no class for scores of sequences";
    if (reason.empty()) return *family;
    reasons.push_back(reason);
  }
  fail(Exit::kUsage, "transformers has no architecture for this model: ", join(reasons, "; "));
}

}  // namespace neox
