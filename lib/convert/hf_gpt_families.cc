// The tables of what grew out of GPT-2.
#include <utility>

#include "base/error.h"
#include "convert/hf_families.h"

namespace neox {
namespace {

using M = ModelConfig;
using F = HfField;
using T = HfTensor;

HfTensor under_gpt_neox(const char* ours) { return {ours, {concat("gpt_neox.", ours)}}; }

// Of models whose first files have names without "transformer.".
HfTensor in_transformer(const char* ours, const std::string& theirs, T::Form form = T::kPlain) {
  return {ours, {concat("transformer.", theirs, "|", theirs)}, form};
}

// Of models whose first files have names without "model.".
std::string decoder_names(const std::string& theirs) {
  return concat("model.decoder.", theirs, "|decoder.", theirs);
}

HfTensor in_decoder(const char* ours, const std::string& theirs, T::Form form = T::kPlain) {
  return {ours, {decoder_names(theirs)}, form};
}

// As BLOOM and Falcon call them.
std::vector<T> attention_and_mlp() {
  return {
      in_transformer("embed_in", "word_embeddings"),
      in_transformer("layers.*.attention.query_key_value", "h.*.self_attention.query_key_value"),
      in_transformer("layers.*.attention.dense", "h.*.self_attention.dense"),
      in_transformer("layers.*.mlp.dense_h_to_4h", "h.*.mlp.dense_h_to_4h"),
      in_transformer("layers.*.mlp.dense_4h_to_h", "h.*.mlp.dense_4h_to_h"),
      in_transformer("final_layer_norm", "ln_f"),
      {"embed_out", {"lm_head"}},
      {"score", {"score"}}};
}

// Attention and MLP side by side. ALiBi is divided by the root of a head's size, and so is another.
HfFamily falcon(const char* yaml, const std::vector<T>& norms, std::vector<HfChoice> choices) {
  return {
      .architecture = "FalconForCausalLM",
      .type = "falcon",
      .yaml = yaml,
      .rotary = HfFamily::kWhole,
      .activation_field = "activation",
      .activation = "gelu",
      .gated = false,
      .fields = {{"num_hidden_layers", "num_layers", &M::layers, "32"},
                 {"hidden_size", "hidden_size", &M::hidden, "4544"},
                 {"num_attention_heads", "num_attention_heads", &M::heads, "71"},
                 {"ffn_hidden_size", "intermediate_size", &M::intermediate, "null", F::kPlain,
                  F::kNone},
                 {"max_position_embeddings", "max_position_embeddings", &M::positions, "2048"},
                 {"vocab_size", "padded_vocab_size", &M::vocab, "65024"},
                 {"layer_norm_epsilon", "layernorm_epsilon", &M::norm_eps, "1e-5"},
                 {"bias", kBiases, &M::attention_bias, "false"},
                 {"tie_word_embeddings", "no_weight_tying", &M::tied_embedding, "true", F::kNot},
                 {"hidden_dropout", "hidden_dropout", &M::hidden_dropout, "0.0"},
                 {"attention_dropout", "attention_dropout", &M::attention_dropout, "0.0"},
                 {"initializer_range", "init_method_std", &M::init_std, "0.02"}},
      .fixed = {{"alibi", false},
                {"apply_residual_connection_post_layernorm", false},
                {"parallel_attn", true}},
      .silent = {"ff_factor"},
      .tensors = norms + attention_and_mlp(),
      .layers = {"transformer.h.", "h."},
      .buffers = {kFrequencies},
      .aliases = {{"n_embed", "hidden_size"}},
      .choices = std::move(choices)};
}

}  // namespace

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

// GPT-2's, whose matrices are not turned. Rows of queries, keys and values lie as ours do, for one
// head of keys and values and for as many as there are of queries.
HfFamily gpt_bigcode() {
  HfFamily family = gpt2();
  family.architecture = "GPTBigCodeForCausalLM";
  family.type = "gpt_bigcode";
  family.activation = "gelu_pytorch_tanh";
  family.fields.push_back({"multi_query", "num_kv_heads", &M::groups, "true", F::kOneGroup});
  family.fields.push_back({"num_key_value_heads", nullptr, &M::groups, "null"});
  for (const char* field : {"attention_softmax_in_fp32", "inference_runner", "max_batch_size",
                            "max_sequence_length", "pad_key_length", "pre_allocate_kv_cache",
                            "scale_attention_softmax_in_fp32", "validate_runner_input"})
    family.silent.push_back(field);
  for (T& tensor : family.tensors) tensor.form = T::kPlain;
  return family;
}

// Norms have an epsilon that no field says. OPT-350m's, behind attention and MLP, and embeddings
// of another width than the hidden states, are other models.
HfFamily opt() {
  return {
      .architecture = "OPTForCausalLM",
      .type = "opt",
      .yaml = "pos_emb: learned\nlayernorm_epsilon: 1e-5\n",
      .rotary = HfFamily::kNoRotary,
      .activation_field = "activation_function",
      .activation = "relu",
      .gated = false,
      .fields = {{"num_hidden_layers", "num_layers", &M::layers, "12"},
                 {"hidden_size", "hidden_size", &M::hidden, "768"},
                 {"word_embed_proj_dim", nullptr, &M::hidden, "null"},
                 {"num_attention_heads", "num_attention_heads", &M::heads, "12"},
                 {"ffn_dim", "intermediate_size", &M::intermediate, "3072"},
                 {"max_position_embeddings", "max_position_embeddings", &M::positions, "2048"},
                 {"vocab_size", "padded_vocab_size", &M::vocab, "50272"},
                 {"enable_bias", kBiases, &M::attention_bias, "true"},
                 {"tie_word_embeddings", "no_weight_tying", &M::tied_embedding, "true", F::kNot},
                 {"dropout", "hidden_dropout", &M::hidden_dropout, "0.1"},
                 {"attention_dropout", "attention_dropout", &M::attention_dropout, "0.0"},
                 {"init_std", "init_method_std", &M::init_std, "0.02"}},
      .fixed = {{"_remove_final_layer_norm", false},
                {"do_layer_norm_before", true},
                {"layer_norm_elementwise_affine", true}},
      .silent = {"activation_dropout", "layerdrop"},
      .tensors = {in_decoder("embed_in", "embed_tokens"),
                  in_decoder("embed_positions", "embed_positions", T::kBehindPadding),
                  in_decoder("layers.*.input_layernorm", "layers.*.self_attn_layer_norm"),
                  in_decoder("layers.*.post_attention_layernorm", "layers.*.final_layer_norm"),
                  {"layers.*.attention.query_key_value",
                   {decoder_names("layers.*.self_attn.q_proj"),
                    decoder_names("layers.*.self_attn.k_proj"),
                    decoder_names("layers.*.self_attn.v_proj")},
                   T::kQueryKeyValue},
                  in_decoder("layers.*.attention.dense", "layers.*.self_attn.out_proj"),
                  in_decoder("layers.*.mlp.dense_h_to_4h", "layers.*.fc1"),
                  in_decoder("layers.*.mlp.dense_4h_to_h", "layers.*.fc2"),
                  in_decoder("final_layer_norm", "final_layer_norm"),
                  {"embed_out", {"lm_head"}},
                  {"score", {"score"}}},
      .layers = {"model.decoder.layers.", "decoder.layers."},
      .buffers = {{".version", "fairseq's number of a format"}}};
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
      .tensors = attention_and_mlp() +
                 std::vector<T>{in_transformer("embed_layernorm", "word_embeddings_layernorm"),
                                in_transformer("layers.*.input_layernorm", "h.*.input_layernorm"),
                                in_transformer("layers.*.post_attention_layernorm",
                                               "h.*.post_attention_layernorm")},
      .layers = {"transformer.h.", "h."},
      .buffers = {},
      .aliases = {{"n_embed", "hidden_size"},
                  {"num_attention_heads", "n_head"},
                  {"num_hidden_layers", "n_layer"}}};
}

// Falcon 7B has one norm for both, and one head of keys and values or as many as there are of
// queries; 40B and 180B have two norms and groups of heads; 11B has one norm and groups.
std::vector<HfFamily> falcons() {
  constexpr const char *kNew = "new_decoder_architecture", *kNorms = "num_ln_in_parallel_attn";
  const char* one_for_both = "pos_emb: rotary\ngpt_j_residual: true\ngpt_j_tied: true\n";
  const T norm = in_transformer("layers.*.input_layernorm", "h.*.input_layernorm");
  HfFamily first = falcon(one_for_both, {norm}, {{kNew, "false", "false"}, {kNorms, "1", "1"}});
  first.fields.push_back({"multi_query", "num_kv_heads", &M::groups, "true", F::kOneGroup});
  first.silent.push_back("num_kv_heads");
  HfFamily large = falcon("pos_emb: rotary\ngpt_j_residual: true\n",
                          {in_transformer("layers.*.input_layernorm", "h.*.ln_attn"),
                           in_transformer("layers.*.post_attention_layernorm", "h.*.ln_mlp")},
                          {{kNew, "true", "false"}, {kNorms, "2", "2"}});
  HfFamily second = falcon(one_for_both, {norm}, {{kNew, "true", "false"}, {kNorms, "1", "2"}});
  for (HfFamily* family : {&large, &second}) {
    family->fields.push_back(
        {"num_kv_heads", "num_kv_heads", &M::groups, "null", F::kPlain, F::kNone});
    family->silent.push_back("multi_query");
  }
  return {first, large, second};
}

}  // namespace neox
