// The table of architectures.
#include "base/error.h"
#include "convert/hf_family.h"

namespace neox {
namespace {

using M = ModelConfig;
using F = HfField;
using T = HfTensor;

constexpr HfBuffer kFrequencies = {".rotary_emb.inv_freq", "follows from the rotary base"};

std::vector<HfField> operator+(std::vector<HfField> a, const std::vector<HfField>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

HfTensor under_gpt_neox(const char* ours) { return {ours, {concat("gpt_neox.", ours)}}; }

HfFamily gpt_neox() {
  return {
      .architecture = "GPTNeoXForCausalLM",
      .type = "gpt_neox",
      .yaml = "pos_emb: rotary\n",
      .rotary = HfFamily::kShare,
      .activation_field = "hidden_act",
      .activation = "gelu",
      .gated = false,
      .fields = {{"num_hidden_layers", "num_layers", &M::layers, "44"},
                 {"hidden_size", "hidden_size", &M::hidden, "6144"},
                 {"num_attention_heads", "num_attention_heads", &M::heads, "64"},
                 {"intermediate_size", "intermediate_size", &M::intermediate, "24576"},
                 {"max_position_embeddings", "max_position_embeddings", &M::positions, "2048"},
                 {"vocab_size", "padded_vocab_size", &M::vocab, "50432"},
                 {"layer_norm_eps", "layernorm_epsilon", &M::norm_eps, "1e-5"},
                 {"use_parallel_residual", "gpt_j_residual", &M::parallel_residual, "true"},
                 {"tie_word_embeddings", "no_weight_tying", &M::tied_embedding, "false", F::kNot},
                 {"attention_bias", "use_bias_in_attn_linear", &M::attention_bias, "true"},
                 {"hidden_dropout", "hidden_dropout", &M::hidden_dropout, "0.0"},
                 {"attention_dropout", "attention_dropout", &M::attention_dropout, "0.0"},
                 {"initializer_range", "init_method_std", &M::init_std, "0.02"}},
      .fixed = {},
      .silent = {},
      .tensors = {under_gpt_neox("embed_in"),
                  under_gpt_neox("layers.*.input_layernorm"),
                  under_gpt_neox("layers.*.post_attention_layernorm"),
                  under_gpt_neox("layers.*.attention.query_key_value"),
                  under_gpt_neox("layers.*.attention.dense"),
                  under_gpt_neox("layers.*.mlp.dense_h_to_4h"),
                  under_gpt_neox("layers.*.mlp.dense_4h_to_h"),
                  under_gpt_neox("final_layer_norm"),
                  {"embed_out", {"embed_out|lm_head"}},
                  {"score", {"score"}}},
      .layers = {"gpt_neox.layers."},
      .buffers = {{".attention.bias", "the causal mask, a constant"},
                  {".attention.masked_bias", "a constant of the mask"},
                  kFrequencies}};
}

// Of models whose first files have names without "transformer.".
HfTensor in_transformer(const char* ours, const std::string& theirs, T::Form form = T::kPlain) {
  return {ours, {concat("transformer.", theirs, "|", theirs)}, form};
}

HfFamily gpt2() {
  return {
      .architecture = "GPT2LMHeadModel",
      .type = "gpt2",
      .yaml = "pos_emb: learned\n",
      .rotary = HfFamily::kNoRotary,
      .activation_field = "activation_function",
      .activation = "gelu_new",
      .gated = false,
      .fields = {{"n_layer", "num_layers", &M::layers, "12"},
                 {"n_embd", "hidden_size", &M::hidden, "768"},
                 {"n_head", "num_attention_heads", &M::heads, "12"},
                 {"n_inner", "intermediate_size", &M::intermediate, "null", F::kPlain, F::kNone},
                 {"n_positions", "max_position_embeddings", &M::positions, "1024"},
                 {"vocab_size", "padded_vocab_size", &M::vocab, "50257"},
                 {"layer_norm_epsilon", "layernorm_epsilon", &M::norm_eps, "1e-5"},
                 {"tie_word_embeddings", "no_weight_tying", &M::tied_embedding, "true", F::kNot},
                 {"resid_pdrop", "hidden_dropout", &M::hidden_dropout, "0.1"},
                 {"embd_pdrop", nullptr, &M::hidden_dropout, "0.1"},
                 {"attn_pdrop", "attention_dropout", &M::attention_dropout, "0.1"},
                 {"initializer_range", "init_method_std", &M::init_std, "0.02"}},
      .fixed = {{"scale_attn_weights", true}},
      .silent = {"n_ctx", "n_special", "predict_special_tokens", "reorder_and_upcast_attn",
                 "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                 "summary_type", "summary_use_proj"},
      .tensors = {in_transformer("embed_in", "wte"),
                  in_transformer("embed_positions", "wpe"),
                  in_transformer("layers.*.input_layernorm", "h.*.ln_1"),
                  in_transformer("layers.*.post_attention_layernorm", "h.*.ln_2"),
                  in_transformer("layers.*.attention.query_key_value", "h.*.attn.c_attn",
                                 T::kTurnedInThirds),
                  in_transformer("layers.*.attention.dense", "h.*.attn.c_proj", T::kTurned),
                  in_transformer("layers.*.mlp.dense_h_to_4h", "h.*.mlp.c_fc", T::kTurned),
                  in_transformer("layers.*.mlp.dense_4h_to_h", "h.*.mlp.c_proj", T::kTurned),
                  in_transformer("final_layer_norm", "ln_f"),
                  {"embed_out", {"lm_head"}},
                  {"score", {"score"}}},
      .layers = {"transformer.h.", "h."},
      .buffers = {{".attn.bias", "the causal mask, a constant"},
                  {".attn.masked_bias", "a constant of the mask"}},
      .aliases = {{"hidden_size", "n_embd"},
                  {"max_position_embeddings", "n_positions"},
                  {"num_attention_heads", "n_head"},
                  {"num_hidden_layers", "n_layer"}}};
}

// Megatron-DeepSpeed's, with ALiBi and a norm of embeddings. MLPs are four times as wide as the
// hidden states, and positions have no end: seq_length says what it was trained with.
HfFamily bloom() {
  return {
      .architecture = "BloomForCausalLM",
      .type = "bloom",
      .yaml = "pos_emb: alibi\nembed_layernorm: true\n",
      .rotary = HfFamily::kNoRotary,
      .activation_field = nullptr,
      .activation = "gelu_new",
      .gated = false,
      .fields = {{"n_layer", "num_layers", &M::layers, "2"},
                 {"hidden_size", "hidden_size", &M::hidden, "64"},
                 {"n_head", "num_attention_heads", &M::heads, "8"},
                 {"seq_length", "max_position_embeddings", &M::positions, "2048"},
                 {"vocab_size", "padded_vocab_size", &M::vocab, "250880"},
                 {"layer_norm_epsilon", "layernorm_epsilon", &M::norm_eps, "1e-5"},
                 {"tie_word_embeddings", "no_weight_tying", &M::tied_embedding, "true", F::kNot},
                 {"hidden_dropout", "hidden_dropout", &M::hidden_dropout, "0.0"},
                 {"attention_dropout", "attention_dropout", &M::attention_dropout, "0.0"},
                 {"initializer_range", "init_method_std", &M::init_std, "0.02"}},
      .fixed = {{"apply_residual_connection_post_layernorm", false}, {"slow_but_exact", false}},
      .silent = {"attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion",
                 "n_inner", "offset_alibi", "pretraining_tp", "skip_bias_add", "skip_bias_add_qkv",
                 "unk_token_id"},
      .tensors = {in_transformer("embed_in", "word_embeddings"),
                  in_transformer("embed_layernorm", "word_embeddings_layernorm"),
                  in_transformer("layers.*.input_layernorm", "h.*.input_layernorm"),
                  in_transformer("layers.*.post_attention_layernorm",
                                 "h.*.post_attention_layernorm"),
                  in_transformer("layers.*.attention.query_key_value",
                                 "h.*.self_attention.query_key_value"),
                  in_transformer("layers.*.attention.dense", "h.*.self_attention.dense"),
                  in_transformer("layers.*.mlp.dense_h_to_4h", "h.*.mlp.dense_h_to_4h"),
                  in_transformer("layers.*.mlp.dense_4h_to_h", "h.*.mlp.dense_4h_to_h"),
                  in_transformer("final_layer_norm", "ln_f"),
                  {"embed_out", {"lm_head"}},
                  {"score", {"score"}}},
      .layers = {"transformer.h.", "h."},
      .buffers = {},
      .aliases = {{"n_embed", "hidden_size"},
                  {"num_attention_heads", "n_head"},
                  {"num_hidden_layers", "n_layer"}}};
}

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

}  // namespace

std::span<const HfFamily> hf_families() {
  static const std::vector<HfFamily> kAll = {gpt_neox(), gpt2(),  llama(), mistral(), mixtral(),
                                             bloom(),    qwen2(), qwen3(), stablelm()};
  return kAll;
}

}  // namespace neox
