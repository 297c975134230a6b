// The model.
#include <cmath>
#include <map>
#include <utility>

#include "base/text.h"
#include "config/build.h"

namespace neox {
namespace {

InitMethod init_method(const std::string& name) {
  static const std::map<std::string, InitMethod> kNames = {
      {"normal", InitMethod::kNormal},
      {"scaled_normal", InitMethod::kScaledNormal},
      {"single_residual_scaled_normal", InitMethod::kSingleResidualScaledNormal},
      {"small_init", InitMethod::kSmallInit},
      {"wang_init", InitMethod::kWangInit},
      {"xavier_uniform", InitMethod::kXavierUniform},
      {"xavier_normal", InitMethod::kXavierNormal},
      {"orthogonal", InitMethod::kOrthogonal},
      {"scaled_orthogonal", InitMethod::kScaledOrthogonal}};
  return kNames.at(name);
}

void read_shape(KeyReader& keys, ModelConfig& model) {
  model.hidden = keys.integer_from("hidden_size", 1, 1 << 20);
  model.heads = keys.integer_from("num_attention_heads", 1, 1 << 20);
  if (keys.maybe_integer("kv_channels")) {
    int64_t size = keys.integer_from("kv_channels", 1, 1 << 16);
    if (size * model.heads != model.hidden) model.given_head_size = size;
  }
  keys.require(model.given_head_size > 0 || model.hidden % model.heads == 0, "hidden_size",
               "hidden_size ", model.hidden, " is not divisible by num_attention_heads ",
               model.heads, " (", keys.where("num_attention_heads"),
               "); kv_channels gives heads another size");
  if (keys.maybe_integer("num_kv_heads")) {
    model.kv_heads = keys.integer_from("num_kv_heads", 1, 1 << 20);
    keys.require(model.heads % model.kv_heads == 0, "num_kv_heads", "num_kv_heads ", model.kv_heads,
                 " does not divide num_attention_heads ", model.heads, " (",
                 keys.where("num_attention_heads"), ")");
  }
  model.seq = keys.integer_from("seq_length", 1, 1 << 24);
  if (keys.maybe_integer("max_position_embeddings")) {
    model.positions = keys.integer_from("max_position_embeddings", 1, 1 << 30);
  } else {
    model.positions = model.seq;
    keys.derive("max_position_embeddings", std::to_string(model.seq), "seq_length");
  }
  keys.require(model.positions >= model.seq, "max_position_embeddings",
               "max_position_embeddings is ", model.positions, ", less than seq_length ", model.seq,
               " (", keys.where("seq_length"), ")");
  if (keys.maybe_integer("sliding_window_width"))
    model.window = keys.integer_from("sliding_window_width", 1, 1 << 30);
}

void read_norms(KeyReader& keys, ModelConfig& model) {
  std::string kind = keys.choice("norm");
  model.norm = kind.ends_with("layernorm") ? Norm::kLayerNorm : Norm::kRmsNorm;
  if (kind == "scalenorm") model.norm_weights = NormWeights::kOne;
  if (kind == "non_parametric_layernorm") model.norm_weights = NormWeights::kNone;
  const char* key = norm_epsilon_key(model);
  model.norm_eps = keys.number(key);
  keys.require(model.norm_eps > 0, key, key, " is ", shortest(model.norm_eps),
               "; it must be positive (usual: 1e-5)");
  model.qk_norm = keys.flag("use_qk_layernorm");
  model.embedding_norm = keys.flag("embed_layernorm");
  model.parallel_residual = keys.flag("gpt_j_residual");
  model.tied_norms = keys.flag("gpt_j_tied");
  keys.require(!model.tied_norms || model.parallel_residual, "gpt_j_tied",
               "gpt_j_tied is true, but attention and MLP are not parallel; set gpt_j_residual to "
               "true, or remove gpt_j_tied");
}

// low < high, both positive.
void read_bounds(KeyReader& keys, std::pair<const char*, double*> low,
                 std::pair<const char*, double*> high) {
  for (auto [name, value] : {low, high}) *value = keys.number(concat("rope_scaling.", name));
  keys.require(*low.second > 0 && *high.second > *low.second, "rope_scaling",
               "rope_scaling: ", low.first, " ", shortest(*low.second),
               " must be positive and less than ", high.first, " ", shortest(*high.second));
}

void read_yarn(KeyReader& keys, RotaryScaling& scaling) {
  keys.require(keys.given("rope_scaling.original_max_position_embeddings"), "rope_scaling",
               "rope_scaling: yarn needs original_max_position_embeddings, the context that the "
               "model was trained with before");
  read_bounds(keys, {"beta_slow", &scaling.beta_slow}, {"beta_fast", &scaling.beta_fast});
  scaling.truncate = keys.flag("rope_scaling.truncate");
  scaling.attention_factor = keys.maybe_number("rope_scaling.attention_factor")
                                 .value_or(yarn_attention_factor(scaling.factor));
  keys.check_positive("rope_scaling.attention_factor", scaling.attention_factor);
  keys.require(scaling.factor > 1 || scaling.attention_factor == 1, "rope_scaling.attention_factor",
               "rope_scaling.attention_factor is ", shortest(scaling.attention_factor),
               ", but factor is 1, which is no scaling");
}

// Keys of other kinds are mistakes.
void check_kind(const KeyReader& keys, const std::string& kind) {
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"llama3", "low_freq_factor"}, {"llama3", "high_freq_factor"}, {"yarn", "beta_fast"},
      {"yarn", "beta_slow"},         {"yarn", "truncate"},           {"yarn", "attention_factor"}};
  for (const auto& [of, name] : kKeys) {
    std::string key = concat("rope_scaling.", name);
    keys.require(of == kind || !keys.given(key), key, key, " is of rope_type ", of, ", not of ",
                 kind);
  }
  std::string original = "rope_scaling.original_max_position_embeddings";
  keys.require(kind != "linear" || !keys.given(original), original, original,
               " is not of rope_type linear, which divides all positions by factor");
}

RotaryScaling read_scaling(KeyReader& keys) {
  static const std::map<std::string, RotaryKind> kNames = {{"llama3", RotaryKind::kLlama3},
                                                           {"linear", RotaryKind::kLinear},
                                                           {"yarn", RotaryKind::kYarn}};
  RotaryScaling scaling;
  std::string kind = keys.choice("rope_scaling.rope_type");
  check_kind(keys, kind);
  scaling.kind = kNames.at(kind);
  keys.require(kind == "llama3" || keys.given("rope_scaling.factor"), "rope_scaling",
               "rope_scaling: ", kind, " needs factor, new context / old one");
  scaling.factor = keys.number("rope_scaling.factor");
  keys.require(scaling.factor >= 1, "rope_scaling.factor", "rope_scaling.factor is ",
               shortest(scaling.factor), "; it must be at least 1");
  if (scaling.kind == RotaryKind::kLinear) return scaling;
  scaling.original_positions =
      keys.integer_from("rope_scaling.original_max_position_embeddings", 1, 1 << 30);
  if (scaling.kind == RotaryKind::kYarn)
    read_yarn(keys, scaling);
  else
    read_bounds(keys, {"low_freq_factor", &scaling.low_freq_factor},
                {"high_freq_factor", &scaling.high_freq_factor});
  return scaling;
}

void read_rotary(KeyReader& keys, ModelConfig& model) {
  model.rotary_pct = keys.number_in("rotary_pct", 0, 1);
  model.rotary_base = keys.number("rotary_emb_base");
  keys.require(model.rotary_base > 1, "rotary_emb_base", "rotary_emb_base is ",
               shortest(model.rotary_base), "; it must be greater than 1 (usual: 10000)");
  int64_t head_size = model.head_size();
  auto rotated = static_cast<int64_t>(static_cast<double>(head_size) * model.rotary_pct);
  keys.require(rotated > 0 && rotated % 2 == 0, "rotary_pct", "rotary_pct ",
               shortest(model.rotary_pct), " of head size ", head_size,
               model.given_head_size > 0 ? concat(" (kv_channels, ", keys.where("kv_channels"), ")")
                                         : concat(" (hidden_size ", model.hidden,
                                                  " / num_attention_heads ", model.heads, ")"),
               " rotates ", rotated, " dimensions; their number must be even and positive");
  if (keys.given("rope_scaling")) model.rotary_scaling = read_scaling(keys);
}

void read_positions(KeyReader& keys, ModelConfig& model) {
  using enum PositionEmbedding;
  static const std::map<std::string, PositionEmbedding> kNames = {
      {"learned", kLearned}, {"rotary", kRotary}, {"sinusoidal", kSinusoidal},
      {"alibi", kAlibi},     {"rpe", kRelative},  {"none", kNone}};
  model.position_embedding = kNames.at(keys.choice("pos_emb"));
  keys.require(model.position_embedding != kSinusoidal || model.hidden % 2 == 0, "pos_emb",
               "pos_emb: sinusoidal needs an even hidden_size, not ", model.hidden);
  if (model.position_embedding == kRotary) read_rotary(keys, model);
  if (model.position_embedding != kRelative) return;
  model.rpe_buckets = keys.integer_from("rpe_num_buckets", 2, 1 << 20);
  model.rpe_max_distance = keys.integer_from("rpe_max_distance", 1, 1 << 30);
  keys.require(model.rpe_max_distance > model.rpe_buckets / 2, "rpe_max_distance",
               "rpe_max_distance is ", model.rpe_max_distance,
               "; it must be more than half of rpe_num_buckets ", model.rpe_buckets, " (",
               keys.where("rpe_num_buckets"), ")");
}

// What another model's tuned values are multiplied by; all 1 where it is that model's own.
std::optional<MupConfig> read_mup(KeyReader& keys, const ModelConfig& model) {
  MupConfig mup;
  const std::pair<const char*, double*> factors[] = {{"mup_init_scale", &mup.init_scale},
                                                     {"mup_attn_temp", &mup.score_temperature},
                                                     {"mup_output_temp", &mup.logit_temperature},
                                                     {"mup_embedding_mult", &mup.embedding},
                                                     {"mup_rp_embedding_mult", &mup.positions}};
  const std::string base = "mup_base_hidden_size";
  if (!keys.flag("use_mup")) {
    for (auto [key, value] : factors) {
      const Value* given = keys.given(key);
      keys.require(!given || given->number() == 1.0, key, key, " is ", given ? given->text : "",
                   ", but use_mup is false; set it to true, or remove this");
    }
    keys.require(!keys.given(base), base, base, " needs use_mup: true");
    return std::nullopt;
  }
  for (auto [key, value] : factors) *value = keys.positive(key);
  bool embeds = model.position_embedding == PositionEmbedding::kLearned ||
                model.position_embedding == PositionEmbedding::kSinusoidal;
  if (!embeds) {
    mup.positions = 1;
    keys.mark("mup_rp_embedding_mult", Effect::kNone);
  }
  keys.require(keys.maybe_integer(base).has_value(), "use_mup",
               "use_mup needs mup_base_hidden_size, the hidden_size of the model that lr and "
               "initial values were tuned on; for that model itself write its own, ",
               model.hidden);
  int64_t narrow = keys.integer_from(base, 1, 1 << 20);
  mup.width = static_cast<double>(model.hidden) / static_cast<double>(narrow);
  for (const char* key : {"init_method", "output_layer_init_method"})
    keys.require(!keys.choice(key).ends_with("orthogonal"), key, key, ": ", keys.choice(key),
                 " does not go with use_mup (", keys.where("use_mup"),
                 "), as in NeoX; write normal, small_init or wang_init");
  return mup;
}

// NeoX's rule: each entry [types, count] adds the pattern `count` times; "all" fills every layer.
int64_t count_pattern(KeyReader& keys, const Value& entry, int64_t layers) {
  const char* form = "; write [[[\"flash\"], 6]], or [[[\"global\"], \"all\"]]";
  const std::string key = "attention_config";
  bool pair = entry.kind == Value::Kind::kList && entry.items.size() == 2 &&
              entry.items[0].kind == Value::Kind::kList && !entry.items[0].items.empty();
  keys.require(pair, key, key, " has the entry ", entry.show(), form);
  const Value &types = entry.items[0], &count = entry.items[1];
  for (const Value& type : types.items)
    keys.require(type.text == "flash" || type.text == "global", key, key, " asks for ", type.show(),
                 " attention, which is not supported yet; supported are \"global\" ",
                 "and \"flash\"");
  auto size = static_cast<int64_t>(types.items.size());
  if (count.text == "all") {
    keys.require(layers % size == 0, key, key, ": a pattern of ", size,
                 " types does not divide num_layers ", layers);
    return layers;
  }
  auto times = count.integer();
  keys.require(times && *times > 0 && *times <= 1 << 16, key, key, " has the count ", count.show(),
               form);
  return size * *times;
}

void check_attention(KeyReader& keys, const ModelConfig& model) {
  const Value* config = keys.given("attention_config");
  if (!config) return;
  int64_t layers = 0;
  bool names = !config->items.empty();
  for (const Value& entry : config->items) names &= entry.kind == Value::Kind::kText;
  if (names) layers = static_cast<int64_t>(config->items.size());
  for (const Value& entry : config->items) {
    if (names)
      keys.require(entry.text == "flash" || entry.text == "global", "attention_config",
                   "attention_config asks for ", entry.show(),
                   " attention, which is not supported yet; supported are \"global\" and "
                   "\"flash\"");
    else
      layers += count_pattern(keys, entry, model.layers);
    if (!names && entry.items[1].text == "all") break;
  }
  keys.require(layers == model.layers, "attention_config", "attention_config describes ", layers,
               " layers, but num_layers is ", model.layers, " (", keys.where("num_layers"),
               "); write [[[\"flash\"], \"all\"]] for as many as there are");
  keys.record_input("attention_config");
}

// Of the keys of Transformer Engine's layers, which compute the same as NeoX's own, but not all
// that these can.
void check_transformer_engine(KeyReader& keys, const ModelConfig& model) {
  auto require = [&](const char* layer, bool fits, const char* other, const char* what) {
    keys.require(fits, layer, layer, ": true ", what, "; change ", other, " (", keys.where(other),
                 "), or remove ", layer);
  };
  if (keys.flag("te_mha")) {
    using enum PositionEmbedding;
    require("te_mha", model.attention_bias, "use_bias_in_attn_linear", "always has biases");
    require("te_mha", !model.qk_norm, "use_qk_layernorm", "norms no queries and keys");
    require("te_mha", model.position_embedding != kAlibi && model.position_embedding != kRelative,
            "pos_emb", "knows no alibi and rpe");
  }
  if (!keys.flag("te_layernorm_mlp")) return;
  const char* layer = "te_layernorm_mlp";
  bool rms = model.norm == Norm::kRmsNorm;
  std::string activation = keys.choice("activation");
  require(layer, model.mlp_bias, "use_bias_in_mlp", "always has biases");
  require(layer, model.norm_weights == NormWeights::kEach, "norm", "norms with weights of its own");
  require(layer, !model.tied_norms, "gpt_j_tied", "has a norm of its own");
  require(layer, !model.moe, "moe_num_experts", "has no experts");
  require(layer, activation == "gelu" || activation == "relu", "activation",
          "is taken with gelu and relu alone (gated, it is three times as wide as NeoX's own)");
  require(layer, model.norm_eps == (rms ? 1e-8 : 1e-5), norm_epsilon_key(model),
          rms ? "has an epsilon of 1e-8" : "has an epsilon of 1e-5");
}

}  // namespace

ModelConfig read_model(KeyReader& keys) {
  ModelConfig model;
  model.layers = keys.integer_from("num_layers", 1, 1 << 16);
  check_attention(keys, model);  // layers of another kind go by other rules of shape
  read_shape(keys, model);
  read_positions(keys, model);
  read_norms(keys, model);
  read_mlp(keys, model);
  model.attention_bias = keys.flag("use_bias_in_attn_linear");
  model.qkv_bias = keys.flag("add_qkv_bias") && !model.attention_bias;
  model.scores = keys.choice("train_impl") == "rm";
  model.tied_embedding = !keys.flag("no_weight_tying") && !model.scores;
  model.init_method = init_method(keys.choice("init_method"));
  model.output_init_method = init_method(keys.choice("output_layer_init_method"));
  model.init_std = keys.positive("init_method_std");
  model.mup = read_mup(keys, model);
  model.moe = read_moe(keys, model);
  check_transformer_engine(keys, model);
  for (auto [key, value] : {std::pair{"hidden_dropout", &model.hidden_dropout},
                            std::pair{"attention_dropout", &model.attention_dropout}}) {
    *value = keys.number(key);
    keys.require(*value >= 0 && *value < 1, key, key, " is ", shortest(*value),
                 "; it must be at least 0 and less than 1");
  }
  return model;
}

}  // namespace neox
