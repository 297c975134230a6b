// What Megatron calls the parameters of a model, and how it cuts them over tensor-parallel ranks.
// Names are those of one whole model: layers are numbered over all pipeline stages. Pure functions.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "convert/tp_parts.h"
#include "shard/box.h"

namespace neox {

// Of a parameter by our name: Megatron-LM's until 2025 and Megatron-DeepSpeed's
// ("language_model.encoder.layers.0.mlp.dense_h_to_4h.weight"), then Megatron-Core's with
// TransformerEngine's layers and without them.
std::vector<std::string> megatron_names(const std::string& ours);

// The first name, where "encoder." was "transformer.", "self_attention." was "attention." (2020),
// or "output_layer." is "lm_head." (the pipeline of Megatron-DeepSpeed).
std::string megatron_name_now(std::string theirs);

// Names of copies of the embedding, to which it is tied.
std::vector<std::string> megatron_copies();

// Why a tensor is not a parameter; "" where no rule says so.
std::string megatron_ignores(const std::string& theirs, bool tied);

// qkv: TpSplit::kRows where a rank's rows are grouped as ours are.
TpForm megatron_form(const ParamSpec& ours, const ModelConfig& model, TpSplit qkv);

}  // namespace neox
