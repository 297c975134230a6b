// The architectures of Hugging Face's transformers that are decoders of ours, as data: the fields
// of config.json that are our keys, and the tensors that our parameters are made of. Pure
// functions.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/config.h"
#include "convert/model_files.h"

namespace neox {

// A field of config.json that is one of our keys.
struct HfField {
  using Member = std::variant<int64_t ModelConfig::*, double ModelConfig::*, bool ModelConfig::*,
                              int64_t (ModelConfig::*)() const>;
  enum Form {
    kPlain,
    kSeveral,  // at least 2
    kTripled,  // our key is three times the field: the width of a gated MLP
    kOneLess,  // our key and member are one less; member 0 is null
    kNot,      // our key is the opposite; the member is the field
    // True where all queries share one head of keys and values, false where each has its own; the
    // member is their number.
    kOneGroup,
  };
  enum Null { kAbsent, kNone };  // what null means: as if absent, or that the key is not given

  const char* theirs;
  // "a|b" where two have its value; nullptr: follows from other fields, and is only compared.
  const char* key;
  Member member;
  const char* absent;  // JSON; "null": the key is not given
  Form form = kPlain;
  Null null = kAbsent;
};

// A parameter, less its .weight or .bias, and the tensors it is made of. '*' is a layer's number;
// '#' that of an expert, of which each has its own: the parameter is a stack of them.
struct HfTensor {
  enum Form {
    kPlain,
    kTurned,  // a matrix is stored the other way round, [in, out]
    // Of [heads, D], [groups, D], [groups, D], three tensors or one of all queries, all keys, all
    // values.
    kQueryKeyValue,
    kTurnedInThirds,  // turned, and all queries stand before all keys and all values
    kGateUp,          // two tensors, or one of all gates and all ups
    kBehindPadding,   // two rows that padding alone has stand in front, and are lost
  };
  const char* ours;
  std::vector<std::string> theirs;  // "a|b" where there are two names for it; the first is written
  Form form = kPlain;
};

struct HfBuffer {
  const char* end;  // of the name of a tensor of a layer that is no parameter
  const char* reason;
};

// A field that tells which of several families of one type a model is of.
struct HfChoice {
  const char *field, *value, *absent;  // JSON
};

struct HfFamily {
  enum Rotary {
    kNoRotary,
    kShare,  // rotary_pct and rotary_emb_base
    kWhole,  // rope_theta, all of each head
    kPart,   // rope_theta and partial_rotary_factor
  };
  const char* architecture;  // "GPTNeoXForCausalLM"
  const char* type;          // "gpt_neox": model_type
  const char* yaml;          // keys of ours that it fixes
  Rotary rotary;
  const char* activation_field;  // null: there is none
  const char* activation;        // where the field is absent
  bool gated;
  std::vector<HfField> fields;
  std::vector<std::pair<const char*, bool>> fixed;  // fields of one value, absent or not
  std::vector<const char*> silent;                  // fields that say nothing of the model
  std::vector<HfTensor> tensors;
  std::vector<const char*> layers;  // how names of the tensors of a layer begin
  std::vector<HfBuffer> buffers;
  double rotary_base = 10000, rotary_share = 0.25;  // where no field gives them
  bool scales = true;                               // rotary frequencies may be scaled
  // Names that transformers takes for fields (attribute_map).
  std::vector<std::pair<const char*, const char*>> aliases = {};
  std::vector<HfChoice> choices = {};
};

// In the order in which they are tried for writing.
std::span<const HfFamily> hf_families();

// By model_type, architectures and choices. Throws (74) for any other.
const HfFamily& family_of(const nlohmann::json& config, const std::string& where);

// The configuration of the model. A field that is not given has transformers' default. Throws (74)
// for fields that are not known, or whose value is not supported; `where` names the file.
Config config_of(const HfFamily& family, const nlohmann::json& json, const std::string& where);

// config.json without the fields that say nothing of the model.
nlohmann::ordered_json json_of(const HfFamily& family, const ModelConfig& model,
                               const std::string& dtype);

// The family whose config.json describes exactly this model: the one of that type, if it does, else
// the first. Throws (64) where none does, naming for each what it does not have.
const HfFamily& family_for(const ModelConfig& model, const std::string& type);

Pieces pieces_of(const HfFamily& family, const ModelConfig& model, const std::string& ours,
                 const Dims& shape);
// The same way back: the tensors of pieces_of(), contiguous.
std::vector<at::Tensor> take_apart(const HfFamily& family, const ModelConfig& model,
                                   const std::string& ours, const at::Tensor& tensor);
// Why a tensor is not a parameter; "" where no rule says so.
std::string ignored_by(const HfFamily& family, const std::string& theirs, bool tied);

}  // namespace neox
