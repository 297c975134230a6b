#include "convert/hf_rotary.h"

#include <optional>
#include <vector>

#include "base/error.h"

namespace neox {
namespace {

using Json = nlohmann::json;

// The names of a share and of a base, by kind; the first is written.
struct RotaryNames {
  std::vector<const char*> share, base;
  double usual_share;
};

const RotaryNames& names_of(HfFamily::Rotary kind) {
  static const RotaryNames kOfShare = {
      {"rotary_pct", "partial_rotary_factor"}, {"rotary_emb_base", "rope_theta"}, 0.25};
  static const RotaryNames kOfWhole = {{"partial_rotary_factor"}, {"rope_theta"}, 1};
  return kind == HfFamily::kShare ? kOfShare : kOfWhole;
}

// A value that several fields may give: the names of old and new versions of transformers.
void agree(std::optional<double>& value, const std::optional<double>& given, const char* name,
           const std::string& where) {
  if (!given) return;
  check_io(!value || *value == *given, where, ": ", name, " is ", *given,
           ", but another field gives ", value.value_or(0));
  value = given;
}

constexpr const char* kFactors[] = {"factor", "low_freq_factor", "high_freq_factor"};
constexpr const char* kOriginal = "original_max_position_embeddings";

// The type is given twice where an older version of transformers wrote it.
std::string type_of(HfFields& rope) {
  std::string type = "default";
  for (const char* name : {"rope_type", "type"}) {
    type = rope.text(name, type);
    check_io(type == "default" || type == "llama3", rope.where(), ".", name, " is ", type,
             "; only default and llama3 are supported");
  }
  return type;
}

// Our rope_scaling; null for none.
Json scaling_of(HfFields& rope, int64_t positions) {
  if (type_of(rope) == "default") return nullptr;
  Json scaling = {{"rope_type", "llama3"}};
  for (const char* name : kFactors) {
    auto value = rope.maybe_number(name);
    check_io(value.has_value(), rope.where(), " lacks ", name);
    scaling[name] = *value;
  }
  Json original = rope.take(kOriginal);
  scaling[kOriginal] = original.is_null() ? Json(positions) : original;
  return scaling;
}

}  // namespace

Json rotary_keys(HfFamily::Rotary kind, HfFields& fields, int64_t positions) {
  if (kind == HfFamily::kNoRotary) return Json::object();
  const RotaryNames& names = names_of(kind);
  std::optional<double> share, base;
  for (const char* name : names.share)
    agree(share, fields.maybe_number(name), name, fields.where());
  for (const char* name : names.base) agree(base, fields.maybe_number(name), name, fields.where());
  Json scaling;
  for (const char* dictionary : {"rope_parameters", "rope_scaling"}) {
    Json inner = fields.take(dictionary);
    if (inner.is_null()) continue;
    HfFields rope(inner, concat(fields.where(), ": ", dictionary));
    Json given = scaling_of(rope, positions);
    check_io(scaling.is_null() || given == scaling, rope.where(),
             " is not what rope_parameters is");
    scaling = given;
    agree(share, rope.maybe_number("partial_rotary_factor"), "partial_rotary_factor", rope.where());
    agree(base, rope.maybe_number("rope_theta"), "rope_theta", rope.where());
    rope.finish();
  }
  check_io(kind == HfFamily::kShare || share.value_or(1) == 1, fields.where(),
           ": partial_rotary_factor is ", share.value_or(1), ", but all of each head is rotated");
  Json keys = {{"rotary_pct", share.value_or(names.usual_share)},
               {"rotary_emb_base", base.value_or(10000)}};
  if (!scaling.is_null()) keys["rope_scaling"] = scaling;
  return keys;
}

void add_rotary_fields(HfFamily::Rotary kind, const ModelConfig& model,
                       nlohmann::ordered_json& config) {
  if (kind == HfFamily::kNoRotary) return;
  const RotaryNames& names = names_of(kind);
  config[names.base[0]] = model.rotary_base;
  if (kind == HfFamily::kShare) config[names.share[0]] = model.rotary_pct;
  const RotaryScaling& r = model.rotary_scaling;
  config["rope_scaling"] = nullptr;
  if (r.factor == 1) return;
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", r.factor},
                            {"low_freq_factor", r.low_freq_factor},
                            {"high_freq_factor", r.high_freq_factor},
                            {kOriginal, r.original_positions}};
}

}  // namespace neox
