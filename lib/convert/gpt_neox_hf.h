// GPTNeoXForCausalLM of Hugging Face's transformers: its config.json and names of tensors. Pure
// functions. The rows of query_key_value are [head, {q,k,v}, D] there as here.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/config.h"

namespace neox {

// The keys of GPT-NeoX's configuration that describe the model. A field that is not given has
// transformers' default. Throws (74) for fields that are not known, or whose value is not
// supported; `where` names the file.
std::string gpt_neox_yaml(const nlohmann::json& config, const std::string& where);

// config.json without the fields that say nothing of the model. Throws (64) for what
// GPTNeoXForCausalLM does not have.
nlohmann::ordered_json gpt_neox_json(const ModelConfig& model, const std::string& dtype);

std::vector<std::string> gpt_neox_names(const std::string& ours);
// Why transformers' tensor is not a parameter; "" where no rule says so.
std::string gpt_neox_ignores(const std::string& theirs, bool tied);

}  // namespace neox
