// Small models of the families of transformers: config.json, and the names and shapes of tensors.
#pragma once
#include <string>
#include <vector>

#include "convert_fixture.h"

namespace neox::testing {

inline constexpr int64_t kWidth = 24, kHeads = 4, kGroups = 2, kSize = 6, kInner = 14,
                         kPositions = 32;

struct Model {
  Json config;
  std::vector<Made> tensors;
};

inline void add_layer(std::vector<Made>& all, int layer, const char* begin,
                      std::vector<Made> tensors) {
  for (Made& t : tensors) all.push_back({concat(begin, layer, ".", t.name), t.shape});
}

inline std::vector<Made> with_prefix(std::vector<Made> tensors, const std::string& prefix) {
  for (Made& t : tensors) t.name = prefix + t.name;
  return tensors;
}

inline Model llama() {
  Json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"hidden_size", kWidth},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", kHeads},
                 {"num_key_value_heads", kGroups},
                 {"head_dim", kSize},
                 {"intermediate_size", kInner},
                 {"max_position_embeddings", kPositions},
                 {"vocab_size", kVocab},
                 {"rms_norm_eps", 1e-5},
                 {"hidden_act", "silu"},
                 {"rope_theta", 500000.0},
                 {"pretraining_tp", 1},
                 {"torch_dtype", "float32"}};
  std::vector<Made> all = {{"model.embed_tokens.weight", {kVocab, kWidth}}};
  for (int layer : {0, 1})
    add_layer(all, layer, "model.layers.",
              {{"input_layernorm.weight", {kWidth}},
               {"post_attention_layernorm.weight", {kWidth}},
               {"self_attn.q_proj.weight", {kHeads * kSize, kWidth}},
               {"self_attn.k_proj.weight", {kGroups * kSize, kWidth}},
               {"self_attn.v_proj.weight", {kGroups * kSize, kWidth}},
               {"self_attn.o_proj.weight", {kWidth, kHeads * kSize}},
               {"mlp.gate_proj.weight", {kInner, kWidth}},
               {"mlp.up_proj.weight", {kInner, kWidth}},
               {"mlp.down_proj.weight", {kWidth, kInner}}});
  all.push_back({"model.norm.weight", {kWidth}});
  all.push_back({"lm_head.weight", {kVocab, kWidth}});
  return {config, all};
}

inline Model biased_llama() {
  Model model = llama();
  model.config["attention_bias"] = true;
  model.config["mlp_bias"] = true;
  std::vector<Made> tensors = model.tensors;
  for (const Made& t : tensors)
    if (t.name.find("_proj") != std::string::npos)
      model.tensors.push_back({t.name.substr(0, t.name.size() - 6) + "bias", {t.shape[0]}});
  return model;
}

// OLMo's: norms have no tensors.
inline Model olmo() {
  Model model = llama();
  model.config["architectures"] = {"OlmoForCausalLM"};
  model.config["model_type"] = "olmo";
  for (const char* field : {"rms_norm_eps", "head_dim", "pretraining_tp"})
    model.config.erase(field);
  std::erase_if(model.tensors,
                [](const Made& t) { return t.name.find("norm") != std::string::npos; });
  return model;
}

inline Model mistral(const Json& window = 9) {
  Model model = llama();
  model.config["architectures"] = {"MistralForCausalLM"};
  model.config["model_type"] = "mistral";
  model.config["sliding_window"] = window;
  model.config.erase("pretraining_tp");
  return model;
}

inline Model mixtral() {
  Model model = mistral(nullptr);
  model.config["architectures"] = {"MixtralForCausalLM"};
  model.config["model_type"] = "mixtral";
  model.config["num_local_experts"] = 3;
  model.config["num_experts_per_tok"] = 2;
  std::erase_if(model.tensors,
                [](const Made& t) { return t.name.find(".mlp.") != std::string::npos; });
  for (int layer : {0, 1}) {
    std::vector<Made> all = {{"gate.weight", {3, kWidth}}};
    for (int e : {0, 1, 2})
      for (const auto& [name, shape] : {std::pair{"w1", Dims{kInner, kWidth}},
                                        {"w2", Dims{kWidth, kInner}},
                                        {"w3", Dims{kInner, kWidth}}})
        all.push_back({concat("experts.", e, ".", name, ".weight"), shape});
    add_layer(model.tensors, layer, "model.layers.", with_prefix(all, "block_sparse_moe."));
  }
  return model;
}

inline Model gpt2(const std::string& prefix = "transformer.") {
  Json config = {{"architectures", {"GPT2LMHeadModel"}},
                 {"model_type", "gpt2"},
                 {"n_embd", kWidth},
                 {"n_layer", 2},
                 {"n_head", kHeads},
                 {"n_inner", nullptr},
                 {"n_ctx", 32},
                 {"n_positions", kPositions},
                 {"vocab_size", kVocab},
                 {"resid_pdrop", 0.1},
                 {"summary_type", "cls_index"}};
  std::vector<Made> all = {{prefix + "wte.weight", {kVocab, kWidth}},
                           {prefix + "wpe.weight", {kPositions, kWidth}}};
  for (int layer : {0, 1})
    add_layer(all, layer, (prefix + "h.").c_str(),
              {{"ln_1.weight", {kWidth}},
               {"ln_1.bias", {kWidth}},
               {"attn.c_attn.weight", {kWidth, 3 * kWidth}},
               {"attn.c_attn.bias", {3 * kWidth}},
               {"attn.c_proj.weight", {kWidth, kWidth}},
               {"attn.c_proj.bias", {kWidth}},
               {"ln_2.weight", {kWidth}},
               {"ln_2.bias", {kWidth}},
               {"mlp.c_fc.weight", {kWidth, 4 * kWidth}},
               {"mlp.c_fc.bias", {4 * kWidth}},
               {"mlp.c_proj.weight", {4 * kWidth, kWidth}},
               {"mlp.c_proj.bias", {kWidth}}});
  all.push_back({prefix + "ln_f.weight", {kWidth}});
  all.push_back({prefix + "ln_f.bias", {kWidth}});
  return {config, all};
}

inline Model bloom(const std::string& prefix = "transformer.") {
  Json config = {{"architectures", {"BloomForCausalLM"}},
                 {"model_type", "bloom"},
                 {"hidden_size", kWidth},
                 {"n_layer", 2},
                 {"n_head", kHeads},
                 {"vocab_size", kVocab},
                 {"seq_length", kPositions},
                 {"layer_norm_epsilon", 1e-6},
                 {"apply_residual_connection_post_layernorm", false},
                 {"offset_alibi", 100},
                 {"slow_but_exact", false}};
  std::vector<Made> all = {{prefix + "word_embeddings.weight", {kVocab, kWidth}},
                           {prefix + "word_embeddings_layernorm.weight", {kWidth}},
                           {prefix + "word_embeddings_layernorm.bias", {kWidth}}};
  for (int layer : {0, 1})
    add_layer(all, layer, (prefix + "h.").c_str(),
              {{"input_layernorm.weight", {kWidth}},
               {"input_layernorm.bias", {kWidth}},
               {"self_attention.query_key_value.weight", {3 * kWidth, kWidth}},
               {"self_attention.query_key_value.bias", {3 * kWidth}},
               {"self_attention.dense.weight", {kWidth, kWidth}},
               {"self_attention.dense.bias", {kWidth}},
               {"post_attention_layernorm.weight", {kWidth}},
               {"post_attention_layernorm.bias", {kWidth}},
               {"mlp.dense_h_to_4h.weight", {4 * kWidth, kWidth}},
               {"mlp.dense_h_to_4h.bias", {4 * kWidth}},
               {"mlp.dense_4h_to_h.weight", {kWidth, 4 * kWidth}},
               {"mlp.dense_4h_to_h.bias", {kWidth}}});
  all.push_back({prefix + "ln_f.weight", {kWidth}});
  all.push_back({prefix + "ln_f.bias", {kWidth}});
  return {config, all};
}

}  // namespace neox::testing
