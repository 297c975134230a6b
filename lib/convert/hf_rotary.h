// Rotary positions in config.json: rope_parameters of transformers 5, rope_theta and rope_scaling
// of 4, and what GPT-NeoX had before.
#pragma once
#include <nlohmann/json.hpp>

#include "convert/hf_family.h"
#include "convert/hf_fields.h"

namespace neox {

// Takes the fields and gives our keys. positions: max_position_embeddings. Throws (74) where fields
// contradict each other, and for kinds of scaling that ModelConfig does not have.
nlohmann::json rotary_keys(const HfFamily& family, HfFields& fields, int64_t positions);

// Adds the fields that transformers 4 and 5 read.
void add_rotary_fields(HfFamily::Rotary kind, const ModelConfig& model,
                       nlohmann::ordered_json& config);

}  // namespace neox
