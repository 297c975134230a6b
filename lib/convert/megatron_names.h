// What Megatron calls the parameters of a model, and how it cuts them over tensor-parallel ranks.
// Names are those of one whole model: layers are numbered over all pipeline stages. Pure functions.
#pragma once
#include <cstdint>
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

// The numbers that the layers of Megatron-DeepSpeed's pipeline have in the names of their files.
// 0 is a function of none, and the embedding is 1.
struct PipelineNumbers {
  int64_t layers = 0;  // of the model
  // Until 2023, and in BigScience's fork, a function in front of the layers and one behind them,
  // which turn the hidden states, are layers too.
  bool turns = false;
  int64_t first() const { return turns ? 3 : 2; }
  int64_t norm() const { return first() + layers + (turns ? 1 : 0); }
  int64_t head() const { return norm() + 1; }  // where it is not tied
};

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
