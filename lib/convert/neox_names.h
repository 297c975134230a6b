// Where GPT-NeoX keeps the parameters of a model: places of its pipeline, names there, and how they
// are shared out over tensor-parallel ranks (megatron/model of GPT-NeoX, versions 1.0 to 2.0).
// Pure functions.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "convert/tp_parts.h"

namespace neox {

struct NeoxPlace {
  int64_t layer = 0;  // of the pipeline: 0 embedding, 2 .. L + 1 blocks, L + 3 norm, L + 4 head
  // The ways to name it, the one that is written first. Where a way has several names, their rows
  // come one after the other.
  std::vector<std::vector<std::string>> names;
  TpForm form;
};

// Of a parameter by our name. Of relative_attention_bias.weight, which each block has a copy of,
// the first one.
NeoxPlace neox_place(const ModelConfig& config, const std::string& ours);

// Why a tensor of a layer is not a parameter; "" where no rule says so.
std::string neox_ignores(const ModelConfig& config, int64_t layer, const std::string& theirs);

// Is it a buffer, which no optimizer updates?
bool neox_is_buffer(const std::string& theirs);
// In which of the two groups of the optimizer is it, that with weight decay?
bool neox_decays(const std::string& theirs);

inline constexpr const char* kNeoxRelative = "attention.rpe.weight";
int64_t neox_layers(const ModelConfig& config);  // places of the pipeline

// Throws (64) for what GPT-NeoX does not have.
void check_neox_has(const ModelConfig& config);

}  // namespace neox
