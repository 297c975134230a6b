#include "convert/hf_rotary.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace neox {
namespace {

using Json = nlohmann::json;

// Of a scaling: that the model was trained with it (Yarn's own models).
constexpr const char* kSilentScaling[] = {"finetuned"};

// The names of a share and of a base, by kind; the first is written.
struct RotaryNames {
  std::vector<const char*> share, base;
};

const RotaryNames& names_of(HfFamily::Rotary kind) {
  static const RotaryNames kOfShare = {{"rotary_pct", "partial_rotary_factor"},
                                       {"rotary_emb_base", "rope_theta"}};
  static const RotaryNames kOthers = {{"partial_rotary_factor"}, {"rope_theta"}};
  return kind == HfFamily::kShare ? kOfShare : kOthers;
}

// A value that several fields may give: the names of old and new versions of transformers.
void agree(std::optional<double>& value, const std::optional<double>& given, const char* name,
           const std::string& where) {
  if (!given) return;
  check_io(!value || *value == *given, where, ": ", name, " is ", *given,
           ", but another field gives ", value.value_or(0));
  value = given;
}

constexpr const char* kOriginal = "original_max_position_embeddings";

// The type is given twice where an older version of transformers wrote it.
std::string type_of(HfFields& rope) {
  const char* name = rope.has("rope_type") ? "rope_type" : "type";
  std::string old = rope.text("type", "default"), type = rope.text("rope_type", old);
  check_io(old == "default" || old == type, rope.where(), ": rope_type is ", type, ", but type is ",
           old, "; remove the one that does not hold");
  bool known = type == "default" || type == "linear" || type == "llama3" || type == "yarn";
  check_io(known, rope.where(), ".", name, " is ", type,
           "; supported are default, linear, llama3 and yarn");
  return type;
}

double needed(HfFields& rope, const char* name) {
  auto value = rope.maybe_number(name);
  check_io(value.has_value(), rope.where(), " lacks ", name);
  return *value;
}

// What is not given has transformers' defaults, which are ours.
void add_yarn(HfFields& rope, Json& scaling) {
  for (const char* name : {"beta_fast", "beta_slow"})
    if (auto value = rope.maybe_number(name)) scaling[name] = *value;
  scaling["truncate"] = rope.flag("truncate", !rope.has("truncate"));  // null is false there
  auto given = rope.maybe_number("attention_factor"), scale = rope.maybe_number("mscale"),
       all = rope.maybe_number("mscale_all_dim");
  double factor = scaling.at("factor");
  if (!given && scale.value_or(0) != 0 && all.value_or(0) != 0)
    given = yarn_attention_factor(factor, *scale) / yarn_attention_factor(factor, *all);
  if (given) scaling["attention_factor"] = *given;
}

// Our rope_scaling; null for none.
Json scaling_of(HfFields& rope, int64_t positions) {
  std::string type = type_of(rope);
  Json original = rope.take(kOriginal);
  if (type == "default") return nullptr;
  Json scaling = {{"rope_type", type}, {"factor", needed(rope, "factor")}};
  if (type == "linear") return scaling;
  scaling[kOriginal] = original.is_null() ? Json(positions) : original;
  if (type == "yarn")
    add_yarn(rope, scaling);
  else
    for (const char* name : {"low_freq_factor", "high_freq_factor"})
      scaling[name] = needed(rope, name);
  return scaling;
}

nlohmann::ordered_json rope_scaling(const RotaryScaling& r) {
  switch (r.kind) {
    case RotaryKind::kLinear:
      return {{"rope_type", "linear"}, {"factor", r.factor}};
    case RotaryKind::kYarn:
      return {{"rope_type", "yarn"},
              {"factor", r.factor},
              {"beta_fast", r.beta_fast},
              {"beta_slow", r.beta_slow},
              {"truncate", r.truncate},
              {"attention_factor", r.attention_factor},
              {kOriginal, r.original_positions}};
    case RotaryKind::kLlama3:
      break;
  }
  return {{"rope_type", "llama3"},
          {"factor", r.factor},
          {"low_freq_factor", r.low_freq_factor},
          {"high_freq_factor", r.high_freq_factor},
          {kOriginal, r.original_positions}};
}

// Where transformers 5 and those before it have what belongs to rotary positions; null: nowhere.
struct Dictionaries {
  Json rope_parameters, rope_scaling;
  bool have(const char* name) const {
    return rope_parameters.contains(name) || rope_scaling.contains(name);
  }
};

// A value outside the dictionaries. aliases: other names than the first are read there; for
// GPT-NeoX transformers 5 does not, unless a dictionary has them too, and takes the usual value.
void take_top(HfFields& fields, const std::vector<const char*>& names, bool aliases, double usual,
              std::optional<double>& value) {
  for (const char* name : names) {
    auto given = fields.maybe_number(name);
    bool read = !given || value || aliases || name == names[0] || *given == usual;
    check_io(read, fields.where(), ": ", name,
             " stands alone, and transformers does not read it there; write ", names[0]);
    agree(value, given, name, fields.where());
  }
}

// Of two dictionaries transformers reads rope_scaling alone.
void check_is_read(const char* name, const Dictionaries& all, bool outside,
                   const std::string& where) {
  check_io(outside || all.rope_scaling.empty() || !all.rope_parameters.contains(name) ||
               all.rope_scaling.contains(name),
           where, ": rope_parameters gives ", name,
           ", but transformers does not read it beside rope_scaling; write it there, or remove "
           "rope_scaling");
}

}  // namespace

Json rotary_keys(const HfFamily& family, HfFields& fields, int64_t positions) {
  HfFamily::Rotary kind = family.rotary;
  if (kind == HfFamily::kNoRotary) return Json::object();
  const RotaryNames& names = names_of(kind);
  double usual_share = kind == HfFamily::kWhole ? 1 : family.rotary_share;
  const Dictionaries inner = {fields.take("rope_parameters"), fields.take("rope_scaling")};
  std::optional<double> share, base;
  bool any = kind != HfFamily::kShare;
  take_top(fields, names.share, any || inner.have("partial_rotary_factor"), usual_share, share);
  take_top(fields, names.base, any || inner.have("rope_theta"), family.rotary_base, base);
  check_is_read("partial_rotary_factor", inner, share.has_value(), fields.where());
  check_is_read("rope_theta", inner, base.has_value(), fields.where());
  Json scaling;
  for (auto [dictionary, values] : {std::pair("rope_parameters", &inner.rope_parameters),
                                    {"rope_scaling", &inner.rope_scaling}}) {
    if (values->is_null()) continue;
    HfFields rope(*values, concat(fields.where(), ": ", dictionary));
    Json given = scaling_of(rope, positions);
    check_io(scaling.is_null() || given == scaling, rope.where(),
             " is not what rope_parameters is");
    scaling = given;
    agree(share, rope.maybe_number("partial_rotary_factor"), "partial_rotary_factor", rope.where());
    agree(base, rope.maybe_number("rope_theta"), "rope_theta", rope.where());
    rope.finish(kSilentScaling);
  }
  check_io(kind != HfFamily::kWhole || share.value_or(1) == 1, fields.where(),
           ": partial_rotary_factor is ", share.value_or(1), ", but all of each head is rotated");
  check_io(family.scales || scaling.is_null(), fields.where(), ": rope_scaling is ", scaling.dump(),
           ", which ", family.architecture, " does not have");
  Json keys = {{"rotary_pct", share.value_or(usual_share)},
               {"rotary_emb_base", base.value_or(family.rotary_base)}};
  if (!scaling.is_null()) keys["rope_scaling"] = scaling;
  return keys;
}

void add_rotary_fields(HfFamily::Rotary kind, const ModelConfig& model,
                       nlohmann::ordered_json& config) {
  if (kind == HfFamily::kNoRotary) return;
  const RotaryNames& names = names_of(kind);
  config[names.base[0]] = model.rotary_base;
  if (kind != HfFamily::kWhole) config[names.share[0]] = model.rotary_pct;
  bool scaled = model.rotary_scaling.factor != 1;
  config["rope_scaling"] = nullptr;
  if (scaled) config["rope_scaling"] = rope_scaling(model.rotary_scaling);
}

}  // namespace neox
