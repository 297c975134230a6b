// Small models of Falcon, OPT, StarCoder and Phi-3, as convert_models.h has others.
#pragma once
#include <string>
#include <vector>

#include "convert_models.h"

namespace neox::testing {

// A weight, and a bias where there is one.
inline void add(std::vector<Made>& all, const std::string& name, const Dims& shape,
                bool bias = true) {
  all.push_back({name + ".weight", shape});
  if (bias) all.push_back({name + ".bias", {shape[0]}});
}

// norms: of a layer.
inline Model falcon(const Json& more, const std::vector<const char*>& norms, int64_t groups) {
  Json config = {{"architectures", {"FalconForCausalLM"}},
                 {"model_type", "falcon"},
                 {"hidden_size", kWidth},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", kHeads},
                 {"ffn_hidden_size", kInner},
                 {"max_position_embeddings", kPositions},
                 {"vocab_size", kVocab},
                 {"layer_norm_epsilon", 1e-6},
                 {"activation", "gelu"},
                 {"bias", false},
                 {"rope_theta", 5000.0}};
  config.update(more);
  std::vector<Made> all;
  add(all, "transformer.word_embeddings", {kVocab, kWidth}, false);
  for (const char* layer : {"transformer.h.0.", "transformer.h.1."}) {
    for (const char* norm : norms) add(all, concat(layer, norm), {kWidth});
    add(all, concat(layer, "self_attention.query_key_value"),
        {(kHeads + 2 * groups) * kSize, kWidth}, false);
    add(all, concat(layer, "self_attention.dense"), {kWidth, kWidth}, false);
    add(all, concat(layer, "mlp.dense_h_to_4h"), {kInner, kWidth}, false);
    add(all, concat(layer, "mlp.dense_4h_to_h"), {kWidth, kInner}, false);
  }
  add(all, "transformer.ln_f", {kWidth});
  return {config, all};
}

inline Model falcon7() {
  return falcon(
      {{"new_decoder_architecture", false}, {"num_ln_in_parallel_attn", 1}, {"multi_query", true}},
      {"input_layernorm"}, 1);
}
inline Model falcon40() {
  return falcon({{"new_decoder_architecture", true},
                 {"num_ln_in_parallel_attn", 2},
                 {"num_kv_heads", kGroups},
                 {"multi_query", true}},
                {"ln_attn", "ln_mlp"}, kGroups);
}
inline Model falcon11() {
  return falcon({{"new_decoder_architecture", true},
                 {"num_ln_in_parallel_attn", 1},
                 {"num_kv_heads", kGroups}},
                {"input_layernorm"}, kGroups);
}

inline Model opt(const std::string& prefix = "model.") {
  Json config = {{"architectures", {"OPTForCausalLM"}},
                 {"model_type", "opt"},
                 {"hidden_size", kWidth},
                 {"word_embed_proj_dim", kWidth},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", kHeads},
                 {"ffn_dim", kInner},
                 {"max_position_embeddings", kPositions},
                 {"vocab_size", kVocab},
                 {"activation_function", "relu"},
                 {"enable_bias", true},
                 {"layerdrop", 0.0}};
  std::vector<Made> all;
  add(all, prefix + "decoder.embed_tokens", {kVocab, kWidth}, false);
  add(all, prefix + "decoder.embed_positions", {kPositions + 2, kWidth}, false);
  for (const char* number : {"0.", "1."}) {
    const std::string layer = concat(prefix, "decoder.layers.", number);
    for (const char* norm : {"self_attn_layer_norm", "final_layer_norm"})
      add(all, layer + norm, {kWidth});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      add(all, concat(layer, "self_attn.", name), {kWidth, kWidth});
    add(all, layer + "fc1", {kInner, kWidth});
    add(all, layer + "fc2", {kWidth, kInner});
  }
  add(all, prefix + "decoder.final_layer_norm", {kWidth});
  return {config, all};
}

inline Model starcoder2() {
  Json config = {{"architectures", {"Starcoder2ForCausalLM"}},
                 {"model_type", "starcoder2"},
                 {"hidden_size", kWidth},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", kHeads},
                 {"num_key_value_heads", kGroups},
                 {"intermediate_size", kInner},
                 {"max_position_embeddings", kPositions},
                 {"vocab_size", kVocab},
                 {"norm_epsilon", 1e-6},
                 {"norm_type", "layer_norm"},
                 {"hidden_act", "gelu_pytorch_tanh"},
                 {"use_bias", true},
                 {"sliding_window", 9},
                 {"rope_theta", 1e5}};
  std::vector<Made> all;
  add(all, "model.embed_tokens", {kVocab, kWidth}, false);
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      add(all, concat(layer, norm), {kWidth});
    for (const char* name : {"q_proj", "o_proj"})
      add(all, concat(layer, "self_attn.", name), {kWidth, kWidth});
    for (const char* name : {"k_proj", "v_proj"})
      add(all, concat(layer, "self_attn.", name), {kGroups * kSize, kWidth});
    add(all, concat(layer, "mlp.c_fc"), {kInner, kWidth});
    add(all, concat(layer, "mlp.c_proj"), {kWidth, kInner});
  }
  add(all, "model.norm", {kWidth});
  return {config, all};
}

inline Model phi3() {
  Json config = {{"architectures", {"Phi3ForCausalLM"}},
                 {"model_type", "phi3"},
                 {"hidden_size", kWidth},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", kHeads},
                 {"num_key_value_heads", kGroups},
                 {"intermediate_size", kInner},
                 {"max_position_embeddings", kPositions},
                 {"original_max_position_embeddings", kPositions},
                 {"vocab_size", kVocab},
                 {"rms_norm_eps", 1e-6},
                 {"hidden_act", "silu"},
                 {"sliding_window", 9},
                 {"rope_scaling", nullptr},
                 {"rope_theta", 1e5},
                 {"partial_rotary_factor", 0.67}};
  std::vector<Made> all;
  add(all, "model.embed_tokens", {kVocab, kWidth}, false);
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      add(all, concat(layer, norm), {kWidth}, false);
    add(all, concat(layer, "self_attn.qkv_proj"), {(kHeads + 2 * kGroups) * kSize, kWidth}, false);
    add(all, concat(layer, "self_attn.o_proj"), {kWidth, kWidth}, false);
    add(all, concat(layer, "mlp.gate_up_proj"), {2 * kInner, kWidth}, false);
    add(all, concat(layer, "mlp.down_proj"), {kWidth, kInner}, false);
  }
  add(all, "model.norm", {kWidth}, false);
  add(all, "lm_head", {kVocab, kWidth}, false);
  return {config, all};
}

// GPT-2's, with matrices that are not turned.
inline Model starcoder(bool multi_query = true) {
  Model model = gpt2();
  Json& config = model.config;
  config["architectures"] = {"GPTBigCodeForCausalLM"};
  config["model_type"] = "gpt_bigcode";
  config["activation_function"] = "gelu_pytorch_tanh";
  config["multi_query"] = multi_query;
  config["n_inner"] = 4 * kWidth;
  config["pad_key_length"] = true;
  int64_t groups = multi_query ? 1 : kHeads;
  for (Made& t : model.tensors) {
    bool layer = t.name.find(".h.") != std::string::npos;
    if (layer && t.shape.size() == 2) std::swap(t.shape[0], t.shape[1]);
    if (t.name.find(".c_attn.") != std::string::npos) t.shape[0] = (kHeads + 2 * groups) * kSize;
  }
  return model;
}

}  // namespace neox::testing
