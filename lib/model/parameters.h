// The only list of the model's parameters: names, global shapes, how tp splits them and how they
// start. Names are those of Hugging Face's GPTNeoXForCausalLM without "gpt_neox."; what that model
// does not have: score.weight (GPTNeoXForSequenceClassification's), embed_layernorm.weight, .bias,
// embed_positions.weight,
// relative_attention_bias.weight (T5's name), attention.query_layernorm, attention.key_layernorm.
//
// Rows of query_key_value: [group, {its queries ..., k, v}, D]; of a gated dense_h_to_4h:
// [column of dense_4h_to_h, {gate, up}]. In layers with experts: mlp.router.weight [experts,
// hidden], and stacks of the experts' matrices, mlp.experts.dense_h_to_4h.weight [experts, rows,
// hidden] and mlp.experts.dense_4h_to_h.weight [experts, hidden, columns].
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "param/param_buffer.h"

namespace neox {

enum class InitKind { kZeros, kOnes, kWeight, kOutputWeight, kXavierNormal };

struct ModelParam {
  ParamSpec spec;
  InitKind init;
};

std::vector<ModelParam> layer_params(const ModelConfig& config, int64_t layer);
ModelParam embedding_param(
    const ModelConfig& config);  // embed_in.weight [V, hidden], also the head where tied
std::vector<ModelParam> embedding_norm_params(const ModelConfig& config);  // or nothing
// The learned table [positions, hidden], or nothing.
std::vector<ModelParam> position_params(const ModelConfig& config);
// T5's table [buckets, heads] of what is added to scores, one for all layers, or nothing. GPT-NeoX
// begins it by Xavier's rule, whatever init_method says.
std::vector<ModelParam> distance_params(const ModelConfig& config);
std::vector<ModelParam> final_params(
    const ModelConfig& config);  // final norm, and the head where untied, or that of scores
// The head of a reward model, which has initial values also where a checkpoint follows: that may be
// of the model that it begins as.
inline constexpr const char* kScoreName = "score.weight";

// All of them, in this order: embedding, its norm, positions, layers, final norm, head.
std::vector<ParamSpec> parameters(const ModelConfig& config);

// Writes the initial values of the buffer's owned chunk into its master; publish() it afterwards. A
// value depends on seed, name and position in the global tensor alone.
void initialize(ParamBuffer& buffer, const std::vector<ModelParam>& params,
                const ModelConfig& config, int64_t seed);

// ALiBi's slopes of all heads, in double. A power of two: head i of n has 2^(-8 (i + 1) / n); else
// those of the power below, and then every second one of the power above (Press et al., "Train
// Short, Test Long", arXiv 2108.12409, and its code).
at::Tensor alibi_slopes(int64_t heads);

}  // namespace neox
