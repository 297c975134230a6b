#include "convert/meta_params.h"

#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "convert/hf_fields.h"

namespace neox {
namespace {

using Json = nlohmann::json;

// Widths that follow from these are those of the tensors; the last one is of a server.
constexpr const char* kSilentParams[] = {"multiple_of", "ffn_dim_multiplier", "max_batch_size"};

// A number of things; `otherwise` where the field is absent.
int64_t meta_count(HfFields& fields, const char* name, std::optional<int64_t> otherwise = {}) {
  constexpr int64_t kMost = int64_t{1} << 40;
  Json value = fields.take(name);
  if (value.is_null() && otherwise) return *otherwise;
  check_io(!value.is_null(), fields.where(), " lacks ", name);
  check_io(value.is_number_integer() && value > 0 && value <= kMost, fields.where(), ": ", name,
           " is ", value.dump(), ", not an integer of at least 1");
  return value;
}

// What is not given in params.json of LLaMA 1 and 2.
Json without_unknown_vocab(Json params) {
  if (params.is_object() && params.contains("vocab_size") && params["vocab_size"] == -1)
    params.erase("vocab_size");
  return params;
}

// Null, or a window, which some files have as text.
Json meta_window(HfFields& fields) {
  Json window = fields.take("sliding_window");
  if (!window.is_string()) return window;
  Json number = Json::parse(window.get<std::string>(), nullptr, false);
  check_io(number.is_number_integer(), fields.where(), ": sliding_window is ", window.dump(),
           ", not an integer");
  return number;
}

bool meta_tied(HfFields& fields, const MetaSizes& sizes) {
  bool tied = fields.flag("tied_embeddings", sizes.tied);
  check_io(!tied || sizes.tied, fields.where(),
           ": tied_embeddings is true, but output.weight differs from tok_embeddings.weight");
  return tied;
}

// LLaMA 3.1's. A factor that is not given is 8, as in Meta's code (llama3_1/model.py) and
// transformers' converter, which has 32 for LLaMA 3.2, whose models of text are the tied ones.
Json meta_scaling(HfFields& fields, bool tied) {
  if (!fields.flag("use_scaled_rope", false)) return nullptr;
  auto given = fields.maybe_number("rope_scaling_factor");
  double factor = given.value_or(tied ? 32 : 8);
  if (!given)
    log_info(fields.where(), ": rope_scaling_factor is not given; ", factor, " is taken, as in ",
             tied ? "LLaMA 3.2, whose heads are tied" : "LLaMA 3.1",
             "; another one may be written into the file");
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", fields.maybe_number("rope_high_freq_factor").value_or(4)},
          {"original_max_position_embeddings", 8192}};
}

struct Positions {
  int64_t number;
  const char* of;
};

// No params.json of LLaMA says it: that of the release which the model looks like, as transformers'
// converter has it by --llama_version. Of LLaMA 1, its 65B has LLaMA 2's norm_eps.
Positions meta_positions(const Json& config, bool mistrals) {
  if (!config.at("rope_scaling").is_null()) return {131072, "LLaMA 3.1 (by use_scaled_rope)"};
  if (mistrals) return {32768, "Mistral (by hidden_dim)"};
  if (config.at("vocab_size") > 100000) return {8192, "LLaMA 3 (by its vocabulary)"};
  if (config.at("rope_theta") > 10000) return {16384, "Code LLaMA (by rope_theta)"};
  if (config.at("rms_norm_eps") >= 1e-5) return {4096, "LLaMA 2 (by norm_eps)"};
  return {2048, "LLaMA 1 (by norm_eps)"};
}

int64_t meta_positions(HfFields& fields, const Json& config, bool mistrals) {
  fields.rename("max_seq_len", "max_position_embeddings");
  if (fields.has("max_position_embeddings")) return meta_count(fields, "max_position_embeddings");
  Positions usual = meta_positions(config, mistrals);
  log_info(fields.where(), ": max_position_embeddings is not given; ", usual.number,
           " is taken, as in ", usual.of, "; another one may be written into the file");
  return usual.number;
}

double meta_norm_eps(HfFields& fields) {
  auto value = fields.maybe_number("norm_eps");
  check_io(value.has_value(), fields.where(), " lacks norm_eps");
  return *value;
}

// 10000 where absent, but that Mistral's code takes another one for models without a window.
double meta_rope_theta(HfFields& fields, bool mistrals, bool window) {
  auto value = fields.maybe_number("rope_theta");
  check_io(value || !mistrals || window, fields.where(),
           " lacks rope_theta; write there what the model was trained with");
  return value.value_or(10000);
}

int64_t meta_head_dim(HfFields& fields, int64_t dim, int64_t heads) {
  check_io(fields.has("head_dim") || dim % heads == 0, fields.where(), ": dim ", dim,
           " is not divisible by n_heads ", heads, ", and there is no head_dim");
  int64_t size = meta_count(fields, "head_dim", dim / heads);
  check_io(size % 2 == 0, fields.where(), ": heads of size ", size,
           " have no halves for rotary positions");
  return size;
}

}  // namespace

Json config_of_params(Json params, const MetaSizes& sizes, const std::string& where) {
  HfFields fields(without_unknown_vocab(std::move(params)), where);
  std::string type = fields.text("model_type", "transformer");
  check_io(type == "transformer", where, ": model_type is ", type, "; supported is transformer");
  bool mistrals = fields.has("hidden_dim");
  int64_t dim = meta_count(fields, "dim"), heads = meta_count(fields, "n_heads");
  Json window = meta_window(fields);
  bool tied = meta_tied(fields, sizes);
  Json config = {{"model_type", window.is_null() ? "llama" : "mistral"},
                 {"hidden_size", dim},
                 {"num_hidden_layers", meta_count(fields, "n_layers")},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", meta_count(fields, "n_kv_heads", heads)},
                 {"head_dim", meta_head_dim(fields, dim, heads)},
                 {"intermediate_size", meta_count(fields, "hidden_dim", sizes.intermediate)},
                 {"vocab_size", meta_count(fields, "vocab_size", sizes.vocab)},
                 {"rms_norm_eps", meta_norm_eps(fields)},
                 {"rope_theta", meta_rope_theta(fields, mistrals, !window.is_null())},
                 {"rope_scaling", meta_scaling(fields, tied)},
                 {"tie_word_embeddings", tied}};
  if (!window.is_null()) config["sliding_window"] = window;
  config["max_position_embeddings"] = meta_positions(fields, config, mistrals);
  fields.finish(kSilentParams);
  return config;
}

}  // namespace neox
