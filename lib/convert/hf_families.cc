// The table of architectures; here those that are like LlamaForCausalLM.
#include "convert/hf_families.h"

#include <string_view>

namespace neox {
namespace {

using M = ModelConfig;
using F = HfField;
using T = HfTensor;

// What all that are like LlamaForCausalLM share.
std::vector<HfField> llama_fields(const char* norm_eps = "1e-6", const char* vocab = "32000",
                                  const char* head_size = "null") {
  return {{"num_hidden_layers", "num_layers", &M::layers, "32"},
          {"hidden_size", "hidden_size", &M::hidden, "4096"},
          {"num_attention_heads", "num_attention_heads", &M::heads, "32"},
          {"head_dim", "kv_channels", &M::head_size, head_size},
          {"vocab_size", "padded_vocab_size", &M::vocab, vocab},
          {"rms_norm_eps", "rms_norm_epsilon", &M::norm_eps, norm_eps},
          {"tie_word_embeddings", "no_weight_tying", &M::tied_embedding, "false", F::kNot},
          {"attention_dropout", "attention_dropout", &M::attention_dropout, "0.0"},
          {"initializer_range", "init_method_std", &M::init_std, "0.02"}};
}

HfFamily llama_like(const char* architecture, const char* type, const char* yaml) {
  return {.architecture = architecture,
          .type = type,
          .yaml = yaml,
          .rotary = HfFamily::kWhole,
          .activation_field = "hidden_act",
          .activation = "silu",
          .gated = true,
          .fields = {},
          .fixed = {},
          .silent = {"pretraining_tp", "is_llama_config", "max_sequence_length"},
          .tensors = {{"embed_in", {"model.embed_tokens"}},
                      {"layers.*.input_layernorm", {"model.layers.*.input_layernorm"}},
                      {"layers.*.post_attention_layernorm",
                       {"model.layers.*.post_attention_layernorm"}},
                      {"layers.*.attention.query_key_value",
                       {"model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.k_proj",
                        "model.layers.*.self_attn.v_proj"},
                       T::kQueryKeyValue},
                      {"layers.*.attention.dense", {"model.layers.*.self_attn.o_proj"}},
                      {"layers.*.mlp.dense_h_to_4h",
                       {"model.layers.*.mlp.gate_proj", "model.layers.*.mlp.up_proj"},
                       T::kGateUp},
                      {"layers.*.mlp.dense_4h_to_h", {"model.layers.*.mlp.down_proj"}},
                      {"final_layer_norm", {"model.norm"}},
                      {"embed_out", {"lm_head"}},
                      {"score", {"score"}}},
          .layers = {"model.layers."},
          .buffers = {kFrequencies}};
}

// In place of that of the same parameter.
void put(std::vector<T>& tensors, const T& tensor) {
  std::erase_if(tensors, [&](const T& t) {
    return std::string_view(t.ours) == std::string_view(tensor.ours);
  });
  tensors.push_back(tensor);
}

HfFamily llama() {
  HfFamily family = llama_like("LlamaForCausalLM", "llama", "pos_emb: rotary\nnorm: rmsnorm\n");
  family.fields =
      llama_fields() +
      std::vector<HfField>{
          {"num_key_value_heads", "num_kv_heads", &M::groups, "null", F::kPlain, F::kNone},
          {"intermediate_size", "intermediate_size", &M::intermediate, "11008", F::kTripled},
          {"max_position_embeddings", "max_position_embeddings", &M::positions, "2048"},
          {"attention_bias", "use_bias_in_attn_linear", &M::attention_bias, "false"},
          {"mlp_bias", "use_bias_in_mlp", &M::mlp_bias, "false"}};
  return family;
}

HfFamily mistral() {
  HfFamily family = llama_like("MistralForCausalLM", "mistral",
                               "pos_emb: rotary\nnorm: rmsnorm\n"
                               "use_bias_in_attn_linear: false\nuse_bias_in_mlp: false\n");
  family.fields =
      llama_fields() +
      std::vector<HfField>{
          {"num_key_value_heads", "num_kv_heads", &M::groups, "8", F::kPlain, F::kNone},
          {"intermediate_size", "intermediate_size", &M::intermediate, "14336", F::kTripled},
          {"max_position_embeddings", "max_position_embeddings", &M::positions, "131072"},
          {"sliding_window", "sliding_window_width", &M::window, "4096", F::kOneLess, F::kNone}};
  return family;
}

// A head_dim that is not given is hidden_size / num_attention_heads in the one and 128 in the
// other. Windows are of layers behind max_window_layers, which are not supported, and off where
// use_sliding_window does not say otherwise.
HfFamily qwen(const char* architecture, const char* type, const char* yaml, const char* head_size) {
  HfFamily family = llama_like(architecture, type, yaml);
  family.fields =
      llama_fields("1e-6", "151936", head_size) +
      std::vector<HfField>{
          {"num_key_value_heads", "num_kv_heads", &M::groups, "32", F::kPlain, F::kNone},
          {"intermediate_size", "intermediate_size", &M::intermediate, "22016", F::kTripled},
          {"max_position_embeddings", "max_position_embeddings", &M::positions, "32768"}};
  family.fixed = {{"use_sliding_window", false}};
  for (const char* field : {"sliding_window", "max_window_layers"}) family.silent.push_back(field);
  return family;
}

HfFamily qwen2() {
  return qwen("Qwen2ForCausalLM", "qwen2",
              "pos_emb: rotary\nnorm: rmsnorm\nuse_bias_in_attn_linear: false\n"
              "add_qkv_bias: true\nuse_bias_in_mlp: false\n",
              "null");
}

HfFamily qwen3() {
  HfFamily family = qwen("Qwen3ForCausalLM", "qwen3",
                         "pos_emb: rotary\nnorm: rmsnorm\nuse_qk_layernorm: true\n"
                         "use_bias_in_mlp: false\n",
                         "128");
  family.fields.push_back(
      {"attention_bias", "use_bias_in_attn_linear", &M::attention_bias, "false"});
  family.tensors.push_back(
      {"layers.*.attention.query_layernorm", {"model.layers.*.self_attn.q_norm"}});
  family.tensors.push_back(
      {"layers.*.attention.key_layernorm", {"model.layers.*.self_attn.k_norm"}});
  return family;
}

// Trained by GPT-NeoX. Norms of heads, and the residual of StableLM-2-12B, are other models.
HfFamily stablelm() {
  HfFamily family = llama_like("StableLmForCausalLM", "stablelm",
                               "pos_emb: rotary\nuse_bias_in_attn_linear: false\n"
                               "use_bias_in_mlp: false\n");
  family.rotary = HfFamily::kPart;
  family.fields = {
      {"num_hidden_layers", "num_layers", &M::layers, "32"},
      {"hidden_size", "hidden_size", &M::hidden, "2560"},
      {"num_attention_heads", "num_attention_heads", &M::heads, "32"},
      {"num_key_value_heads", "num_kv_heads", &M::groups, "32", F::kPlain, F::kNone},
      {"intermediate_size", "intermediate_size", &M::intermediate, "6912", F::kTripled},
      {"max_position_embeddings", "max_position_embeddings", &M::positions, "4096"},
      {"vocab_size", "padded_vocab_size", &M::vocab, "50304"},
      {"layer_norm_eps", "layernorm_epsilon", &M::norm_eps, "1e-5"},
      {"use_qkv_bias", "add_qkv_bias", &M::qkv_bias, "false"},
      {"tie_word_embeddings", "no_weight_tying", &M::tied_embedding, "false", F::kNot},
      {"hidden_dropout", "hidden_dropout", &M::hidden_dropout, "0.0"},
      {"attention_dropout", "attention_dropout", &M::attention_dropout, "0.0"},
      {"initializer_range", "init_method_std", &M::init_std, "0.02"}};
  family.fixed = {{"qk_layernorm", false}, {"use_parallel_residual", false}};
  return family;
}

// OLMo 1: its norms learn nothing. Queries, keys and values that are clipped (clip_qkv, OLMo 1.7)
// are another model. Transformers has no class of it for scores.
HfFamily olmo() {
  HfFamily family = llama_like("OlmoForCausalLM", "olmo",
                               "pos_emb: rotary\nnorm: non_parametric_layernorm\n"
                               "layernorm_epsilon: 1e-5\nuse_bias_in_mlp: false\n");
  family.fields = {
      {"num_hidden_layers", "num_layers", &M::layers, "32"},
      {"hidden_size", "hidden_size", &M::hidden, "4096"},
      {"num_attention_heads", "num_attention_heads", &M::heads, "32"},
      {"num_key_value_heads", "num_kv_heads", &M::groups, "null", F::kPlain, F::kNone},
      {"intermediate_size", "intermediate_size", &M::intermediate, "11008", F::kTripled},
      {"max_position_embeddings", "max_position_embeddings", &M::positions, "2048"},
      {"vocab_size", "padded_vocab_size", &M::vocab, "50304"},
      {"attention_bias", "use_bias_in_attn_linear", &M::attention_bias, "false"},
      {"tie_word_embeddings", "no_weight_tying", &M::tied_embedding, "false", F::kNot},
      {"attention_dropout", "attention_dropout", &M::attention_dropout, "0.0"},
      {"initializer_range", "init_method_std", &M::init_std, "0.02"}};
  std::erase_if(family.tensors, [](const T& t) {
    std::string_view ours = t.ours;
    return ours.find("norm") != ours.npos || ours == "score";
  });
  return family;
}

// Its training adds a loss that balances the load, and noise: neither is a part of the model.
HfFamily mixtral() {
  HfFamily family = llama_like("MixtralForCausalLM", "mixtral",
                               "pos_emb: rotary\nnorm: rmsnorm\n"
                               "use_bias_in_attn_linear: false\nuse_bias_in_mlp: false\n"
                               "moe_router_type: topk\nmoe_normalize_expert_weights: true\n");
  family.rotary_base = 1e6;
  family.fields =
      llama_fields("1e-5") +
      std::vector<HfField>{
          {"num_key_value_heads", "num_kv_heads", &M::groups, "8", F::kPlain, F::kNone},
          {"intermediate_size", "intermediate_size", &M::intermediate, "14336", F::kTripled},
          {"max_position_embeddings", "max_position_embeddings", &M::positions, "131072"},
          {"sliding_window", "sliding_window_width", &M::window, "null", F::kOneLess, F::kNone},
          {"num_local_experts", "moe_num_experts", &M::experts, "8", F::kSeveral},
          {"num_experts_per_tok", "moe_top_k", &M::experts_of_token, "2", F::kSeveral}};
  for (const char* field : {"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"})
    family.silent.push_back(field);
  std::erase_if(family.tensors,
                [](const T& t) { return std::string_view(t.ours).starts_with("layers.*.mlp."); });
  const std::vector<T> experts = {
      {"layers.*.mlp.router", {"model.layers.*.block_sparse_moe.gate"}},
      {"layers.*.mlp.experts.dense_h_to_4h",
       {"model.layers.*.block_sparse_moe.experts.#.w1",
        "model.layers.*.block_sparse_moe.experts.#.w3"},
       T::kGateUp},
      {"layers.*.mlp.experts.dense_4h_to_h", {"model.layers.*.block_sparse_moe.experts.#.w2"}}};
  family.tensors.insert(family.tensors.end(), experts.begin(), experts.end());
  return family;
}

// Norms and linear layers are GPT-2's.
HfFamily starcoder2() {
  HfFamily family = llama_like("Starcoder2ForCausalLM", "starcoder2", "pos_emb: rotary\n");
  family.activation = "gelu_pytorch_tanh";
  family.gated = false;
  family.fields = {
      {"num_hidden_layers", "num_layers", &M::layers, "30"},
      {"hidden_size", "hidden_size", &M::hidden, "3072"},
      {"num_attention_heads", "num_attention_heads", &M::heads, "24"},
      {"num_key_value_heads", "num_kv_heads", &M::groups, "2"},
      {"intermediate_size", "intermediate_size", &M::intermediate, "12288"},
      {"max_position_embeddings", "max_position_embeddings", &M::positions, "4096"},
      {"vocab_size", "padded_vocab_size", &M::vocab, "49152"},
      {"norm_epsilon", "layernorm_epsilon", &M::norm_eps, "1e-5"},
      {"use_bias", kBiases, &M::attention_bias, "true"},
      {"sliding_window", "sliding_window_width", &M::window, "null", F::kOneLess, F::kNone},
      {"tie_word_embeddings", "no_weight_tying", &M::tied_embedding, "true", F::kNot},
      {"residual_dropout", "hidden_dropout", &M::hidden_dropout, "0.0"},
      {"embedding_dropout", nullptr, &M::hidden_dropout, "0.0"},
      {"attention_dropout", "attention_dropout", &M::attention_dropout, "0.0"},
      {"initializer_range", "init_method_std", &M::init_std, "0.018042"}};
  family.silent = {
      "activation_function", "attention_softmax_in_fp32",       "layer_norm_epsilon", "mlp_type",
      "norm_type",           "scale_attention_softmax_in_fp32", "scale_attn_weights"};
  put(family.tensors, {"layers.*.mlp.dense_h_to_4h", {"model.layers.*.mlp.c_fc"}});
  put(family.tensors, {"layers.*.mlp.dense_4h_to_h", {"model.layers.*.mlp.c_proj"}});
  return family;
}

// Queries, keys and values are one tensor, gate and up another. Of scalings it has longrope alone.
HfFamily phi3() {
  HfFamily family = llama_like("Phi3ForCausalLM", "phi3",
                               "pos_emb: rotary\nnorm: rmsnorm\n"
                               "use_bias_in_attn_linear: false\nuse_bias_in_mlp: false\n");
  family.rotary = HfFamily::kPart;
  family.rotary_share = 1;
  family.scales = false;
  family.fields = {
      {"num_hidden_layers", "num_layers", &M::layers, "32"},
      {"hidden_size", "hidden_size", &M::hidden, "3072"},
      {"num_attention_heads", "num_attention_heads", &M::heads, "32"},
      {"num_key_value_heads", "num_kv_heads", &M::groups, "null", F::kPlain, F::kNone},
      {"intermediate_size", "intermediate_size", &M::intermediate, "8192", F::kTripled},
      {"max_position_embeddings", "max_position_embeddings", &M::positions, "4096"},
      {"vocab_size", "padded_vocab_size", &M::vocab, "32064"},
      {"rms_norm_eps", "rms_norm_epsilon", &M::norm_eps, "1e-5"},
      {"sliding_window", "sliding_window_width", &M::window, "null", F::kOneLess, F::kNone},
      {"tie_word_embeddings", "no_weight_tying", &M::tied_embedding, "false", F::kNot},
      {"resid_pdrop", "hidden_dropout", &M::hidden_dropout, "0.0"},
      {"embd_pdrop", nullptr, &M::hidden_dropout, "0.0"},
      {"attention_dropout", "attention_dropout", &M::attention_dropout, "0.0"},
      {"initializer_range", "init_method_std", &M::init_std, "0.02"}};
  family.silent = {"original_max_position_embeddings"};
  put(family.tensors, {"layers.*.attention.query_key_value",
                       {"model.layers.*.self_attn.qkv_proj"},
                       T::kQueryKeyValue});
  put(family.tensors,
      {"layers.*.mlp.dense_h_to_4h", {"model.layers.*.mlp.gate_up_proj"}, T::kGateUp});
  return family;
}

}  // namespace

std::span<const HfFamily> hf_families() {
  static const std::vector<HfFamily> kAll =
      std::vector<HfFamily>{gpt_neox(), gpt2(),  llama(),       mistral(),  mixtral(),
                            bloom(),    qwen2(), qwen3(),       stablelm(), starcoder2(),
                            phi3(),     olmo(),  gpt_bigcode(), opt()} +
      falcons();
  return kAll;
}

}  // namespace neox
