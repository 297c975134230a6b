#include "convert/hf_fields.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace neox {
namespace {

using Json = nlohmann::json;

// Of every model of transformers: what describes files, training, generation or classification.
constexpr std::string_view kSilent[] = {"_attn_implementation",
                                        "_attn_implementation_autoset",
                                        "_commit_hash",
                                        "_flash_attn_2_enabled",
                                        "_name_or_path",
                                        "_num_labels",
                                        "add_cross_attention",
                                        "attention_probs_dropout_prob",
                                        "attn_implementation",
                                        "auto_map",
                                        "bad_words_ids",
                                        "begin_suppress_tokens",
                                        "bos_token_id",
                                        "chunk_size_feed_forward",
                                        "classifier_dropout",
                                        "cross_attention_hidden_size",
                                        "custom_pipelines",
                                        "decoder_start_token_id",
                                        "diversity_penalty",
                                        "do_sample",
                                        "dtype",
                                        "early_stopping",
                                        "encoder_no_repeat_ngram_size",
                                        "eos_token_id",
                                        "exponential_decay_length_penalty",
                                        "finetuning_task",
                                        "forced_bos_token_id",
                                        "forced_eos_token_id",
                                        "gradient_checkpointing",
                                        "hidden_dropout_prob",
                                        "id2label",
                                        "is_decoder",
                                        "label2id",
                                        "length_penalty",
                                        "max_length",
                                        "min_length",
                                        "model_max_length",
                                        "no_repeat_ngram_size",
                                        "num_beam_groups",
                                        "num_beams",
                                        "num_labels",
                                        "num_return_sequences",
                                        "output_attentions",
                                        "output_hidden_states",
                                        "output_past",
                                        "output_scores",
                                        "pad_token_id",
                                        "prefix",
                                        "problem_type",
                                        "pruned_heads",
                                        "remove_invalid_values",
                                        "repetition_penalty",
                                        "return_dict",
                                        "return_dict_in_generate",
                                        "sep_token_id",
                                        "suppress_tokens",
                                        "task_specific_params",
                                        "temperature",
                                        "tf_legacy_loss",
                                        "tie_encoder_decoder",
                                        "tokenizer_class",
                                        "top_k",
                                        "top_p",
                                        "torch_dtype",
                                        "torchscript",
                                        "transformers.js_config",
                                        "transformers_version",
                                        "typical_p",
                                        "unsloth_fixed",
                                        "unsloth_version",
                                        "use_bfloat16",
                                        "use_cache"};

// What is known to change the model.
constexpr const char* kQuantized =
    "quantized weights are not read; take the model as it was before, or one made whole again";
constexpr std::pair<std::string_view, const char*> kRefused[] = {
    {"quantization_config", kQuantized},
    {"quantization_args", kQuantized},  // of params.json
    {"moe", "experts are read in Hugging Face's form of the model alone"},
    {"original_max_position_embeddings", "not supported beside rope_scaling; write it into that"},
    {"scale_attn_by_inverse_layer_idx",
     "scores that are divided by the layer's number are not supported"}};

}  // namespace

HfFields::HfFields(Json fields, const std::string& where)
    : fields_(std::move(fields)), where_(where) {
  check_io(fields_.is_object(), where_, " is not a dictionary");
}

Json HfFields::take(const char* name) {
  auto found = fields_.find(name);
  if (found == fields_.end()) return nullptr;
  Json value = std::move(*found);
  fields_.erase(found);
  return value;
}

void HfFields::rename(const char* alias, const char* name) {
  Json value = take(alias);
  if (value.is_null()) return;
  auto found = fields_.find(name);
  check_io(found == fields_.end() || *found == value, where_, ": ", alias, " is ", value.dump(),
           ", and ", name, ", which is the same field, ",
           found == fields_.end() ? "" : found->dump());
  fields_[name] = value;
}

std::optional<double> HfFields::maybe_number(const char* name) {
  Json value = take(name);
  if (value.is_null()) return std::nullopt;
  check_io(value.is_number(), where_, ": ", name, " is ", value.dump(), ", not a number");
  return value.get<double>();
}

bool HfFields::flag(const char* name, bool fallback) {
  Json value = take(name);
  if (value.is_null()) return fallback;
  check_io(value.is_boolean(), where_, ": ", name, " is ", value.dump(), ", not true or false");
  return value.get<bool>();
}

std::string HfFields::text(const char* name, const std::string& fallback) {
  Json value = take(name);
  if (value.is_null()) return fallback;
  check_io(value.is_string(), where_, ": ", name, " is ", value.dump(), ", not text");
  return value.get<std::string>();
}

void HfFields::finish(std::span<const char* const> silent) const {
  auto says_nothing = [&](const std::string& name) {
    return std::ranges::find(kSilent, name) != std::end(kSilent) ||
           std::ranges::find(silent, name) != silent.end();
  };
  for (const auto& [name, value] : fields_.items()) {
    bool off = value.is_null() || value == false;  // is_encoder_decoder, quantization_config ...
    if (off || says_nothing(name)) continue;
    for (const auto& [known, reason] : kRefused)
      if (name == known) fail(Exit::kIo, where_, ": ", name, " is ", value.dump(), ": ", reason);
    fail(Exit::kIo, where_, ": the field ", name, " (", value.dump(),
         ") is not known: what it changes in the model would be lost; if it changes nothing, "
         "remove it");
  }
}

}  // namespace neox
