#include "config/keys.h"

#include <map>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

using Index = std::map<std::string, const KeyRow*, std::less<>>;

void add_rows(Index& index, std::span<const KeyRow> rows, const std::string& prefix) {
  for (const KeyRow& row : rows) {
    index[prefix + row.name] = &row;
    add_rows(index, row.children, prefix + row.name + '.');
  }
}

const Index& index() {
  static const Index kIndex = [] {
    Index all;
    for (const KeyGroup& group : neox_keys()) add_rows(all, group.rows, "");
    add_rows(all, own_keys(), "");
    return all;
  }();
  return kIndex;
}

struct Hint {
  const char* foreign;
  const char* meant;
};

// What users of Megatron, Hugging Face, DeepSpeed and old NeoX files write.
constexpr Hint kHints[] = {
    {"swiglu", "activation: swiglu"},
    {"disable_bias_linear", "use_bias_in_attn_linear: false and use_bias_in_mlp: false"},
    {"group_query_attention", "num_kv_heads alone"},
    {"gradient_accumulation", "gradient_accumulation_steps"},
    {"global_batch_size", "train_batch_size"},
    {"micro_batch_size", "train_micro_batch_size_per_gpu"},
    {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"save_steps", "checkpoint_factor"},
    {"checkpoint_interval", "checkpoint_factor"},
    {"save_iters", "extra_save_iters"},
    {"save_total_limit", "keep_last_n_checkpoints"},
    {"warmup_iters", "warmup, a share of lr_decay_iters"},
    {"lr_warmup_iters", "warmup, a share of lr_decay_iters"},
    {"warmup_iter", "warmup, a share of lr_decay_iters"},
    {"warmup_steps", "warmup, a share of lr_decay_iters"},
    {"lr_warmup_fraction", "warmup"},
    {"warmup_ratio", "warmup"},
    {"decay_lr_to", "min_lr, a learning rate: decay_lr_to x lr"},
    {"lr_scheduler_type", "lr_decay_style"},
    {"learning_rate", "optimizer.params.lr"},
    {"adam_beta1", "optimizer.params.betas: [beta1, beta2]"},
    {"adam_beta2", "optimizer.params.betas: [beta1, beta2]"},
    {"beta1", "optimizer.params.betas: [beta1, beta2]"},
    {"beta2", "optimizer.params.betas: [beta1, beta2]"},
    {"adam_eps", "optimizer.params.eps"},
    {"adam_epsilon", "optimizer.params.eps"},
    {"max_grad_norm", "gradient_clipping"},
    {"max_steps", "train_iters"},
    {"train_tokens", "train_samples"},
    {"lr_decay_tokens", "lr_decay_samples"},
    {"lr_warmup_samples", "warmup, a share of lr_decay_samples"},
    {"lr_warmup_tokens", "warmup, a share of lr_decay_samples"},
    {"no_pipeline_parallel", "pipe_parallel_size: 1"},
    {"use_flash_attn", "nothing: the fastest kernel is taken by itself"},
    {"num_train_epochs", "train_epochs"},
    {"tensor_model_parallel_size", "model_parallel_size"},
    {"pipeline_model_parallel_size", "pipe_parallel_size"},
    {"tp", "model_parallel_size"},
    {"pp", "pipe_parallel_size"},
    {"num_hidden_layers", "num_layers"},
    {"n_layer", "num_layers"},
    {"n_layers", "num_layers"},
    {"d_model", "hidden_size"},
    {"n_embd", "hidden_size"},
    {"n_head", "num_attention_heads"},
    {"n_heads", "num_attention_heads"},
    {"num_heads", "num_attention_heads"},
    {"num_query_groups", "num_kv_heads"},
    {"num_key_value_heads", "num_kv_heads"},
    {"attention_type", "num_kv_heads, or attention_config"},
    {"ffn_hidden_size", "intermediate_size, three times it where the MLP is gated"},
    {"hidden_act", "activation"},
    {"sliding_window", "sliding_window_width, less 1"},
    {"seq_len", "seq_length"},
    {"sequence_length", "seq_length"},
    {"max_length", "seq_length"},
    {"vocab_size", "padded_vocab_size"},
    {"position_embedding_type", "pos_emb; rope is rotary, learned_absolute learned"},
    {"use_rotary_position_embeddings", "pos_emb: rotary"},
    {"rotary_seq_len_interpolation_factor", "rope_scaling: {rope_type: linear, factor: N}"},
    {"rotary_percent", "rotary_pct"},
    {"rotary_base", "rotary_emb_base"},
    {"rope_theta", "rotary_emb_base"},
    {"normalization", "norm"},
    {"norm_epsilon", "rms_norm_epsilon or layernorm_epsilon, by norm"},
    {"qk_layernorm", "use_qk_layernorm"},
    {"layer_norm_eps", "layernorm_epsilon"},
    {"rms_norm_eps", "rms_norm_epsilon"},
    {"use_parallel_residual", "gpt_j_residual"},
    {"untie_embeddings_and_output_weights", "no_weight_tying"},
    {"tie_word_embeddings", "no_weight_tying, its contrary"},
    {"recompute_activations", "nothing: the scores of attention are not stored"},
    {"recompute_granularity", "checkpoint_activations: true, where it is full"},
    {"gradient_checkpointing", "checkpoint_activations"},
    {"num_experts", "moe_num_experts"},
    {"moe_router_topk", "moe_top_k"},
    {"topk", "moe_top_k"},
    {"expert_interval", "moe_expert_interval"},
    {"moe_type", "nothing: no token is dropped"},
    {"moe_token_dropping", "nothing: no token is dropped"},
    {"moe_train_capacity_factor", "nothing: no token is dropped"},
    {"moe_eval_capacity_factor", "nothing: no token is dropped"},
    {"moe_min_capacity", "nothing: no token is dropped"},
    {"moe_expert_parallel_size", "nothing: experts are cut as MLPs are, by model_parallel_size"},
    {"enable_expert_tensor_parallelism", "nothing: experts are cut as MLPs are"},
    {"moe_loss_coeff", "nothing: no loss balances experts; moe_router_type: sinkhorn does"},
    {"context_parallel_size", "nothing: sequence_parallel shares out what lies between matrices"},
    {"train_data_path", "train_data_paths, a list"},
    {"valid_data_path", "valid_data_paths, a list"},
    {"test_data_path", "test_data_paths, a list"},
    {"tokenizer_model", "vocab_file"},
    {"tokenizer_name_or_path", "vocab_file: its tokenizer.json, and tokenizer_type: HFTokenizer"},
    {"pad_vocab_size_to", "padded_vocab_size"},
    {"tokenizer_file", "vocab_file"},
    {"conf_dir", "-d or --directory, on the command line"},
    {"autotuning_config", "neox-submit layouts, which shows what fits, and what it costs"},
    {"eval_steps", "eval_interval"},
    {"eval_batch_size", "nothing: evaluation takes batches as training does"},
    {"wandb_name", "wandb_run_name"},
    {"wandb_entity", "wandb_team"},
    {"use_distributed_optimizer", "zero_optimization.stage: 1"},
    {"override_opt_param_scheduler", "override_lr_scheduler"},
    {"use_mpi", "nothing: how ranks find each other is read from the environment"},
    {"mup", "use_mup"},
    {"logging_steps", "log_interval"},
    {"<<", "nothing: merge keys are not read; write the keys out"},
};

std::vector<std::string> siblings(const std::string& parent) {
  std::vector<std::string> names;
  std::string prefix = parent.empty() ? "" : parent + '.';
  for (const auto& [path, row] : index())
    if (path.starts_with(prefix) && path.find('.', prefix.size()) == path.npos)
      names.push_back(path.substr(prefix.size()));
  return names;
}

// The key of that name in some other dictionary, where only one has it.
std::string elsewhere(const std::string& name) {
  std::string found;
  for (const auto& [path, row] : index()) {
    bool here = path == name || path.ends_with('.' + name);
    if (!here || row->fate != Fate::kUsed) continue;
    if (!found.empty()) return "";
    found = path;
  }
  return found;
}

}  // namespace

const KeyRow* find_key(std::string_view path) {
  auto at = index().find(path);
  return at == index().end() ? nullptr : at->second;
}

std::string name_of_today(const std::string& name) {
  // Before versions of December 2022 and of September 2024.
  if (name == "save_interval") return "checkpoint_factor";
  if (name == "label_data_paths") return "train_label_data_paths";
  return name;
}

std::string translate_key(const std::string& name) {
  if (std::string today = name_of_today(name); today != name) return concat("; here it is ", today);
  constexpr std::string_view kNothing = "nothing: ";
  for (const Hint& hint : kHints) {
    std::string_view meant = hint.meant;
    if (name != hint.foreign) continue;
    return meant.starts_with(kNothing) ? concat("; remove it: ", meant.substr(kNothing.size()))
                                       : concat("; here it is ", meant);
  }
  return "";
}

std::string suggest_key(const std::string& name, const std::string& parent) {
  if (std::string words = translate_key(name); !words.empty()) return words;
  if (std::string key = elsewhere(name); !key.empty())
    return parent.empty() || key.find('.') != key.npos
               ? concat("; did you mean ", key, "?")
               : concat("; did you mean the key ", key, " outside of ", parent, "?");
  if (std::string key = nearest(name, siblings(parent)); !key.empty())
    return concat("; did you mean '", key, "'?");
  if (parent.empty()) return "; docs/config.md lists all keys";
  return concat("; ", parent, " may hold ", join(siblings(parent), ", "));
}

namespace {

// ", such as {...}" with keys that it has, or "".
std::string dictionary_example(const KeyRow& row) {
  static constexpr std::pair<std::string_view, const char*> kExamples[] = {
      {"optimizer", "{type: Adam, params: {lr: 6e-4}}"},
      {"params", "{lr: 6e-4}"},
      {"zero_optimization", "{stage: 1}"},
      {"data_types", "{grad_accum_dtype: fp32}"},
      {"rope_scaling", "{rope_type: llama3, factor: 8}"}};
  for (auto [name, example] : kExamples)
    if (row.name == name) return concat(", such as ", row.name, ": ", example);
  for (const KeyRow& child : row.children)
    if (child.name == std::string_view("enabled"))
      return concat(", such as ", row.name, ": {enabled: true}");
  return "";
}

}  // namespace

std::string describe_type(const KeyRow& row) {
  switch (row.type) {
    case KeyType::kBool:
      return "true or false";
    case KeyType::kInt:
      return "an integer";
    case KeyType::kNumber:
      return "a number, such as 0.1 or 1e-4";
    case KeyType::kText:
      return "text";
    case KeyType::kChoice:
      return "one of " + join(split(row.allowed, '|'), ", ");
    case KeyType::kInts:
      return "a list of integers, such as [0, 1, 2]";
    case KeyType::kNumbers:
      return "a list of numbers, such as [0.9, 0.95]";
    case KeyType::kTexts:
      return "a list of texts, such as [\"a\", \"b\"]";
    case KeyType::kPattern:
      return "a list such as [[[\"flash\"], 6]] or [[[\"global\"], \"all\"]]";
    case KeyType::kDict:
      return "a dictionary" + dictionary_example(row);
    case KeyType::kAny:
      return "any value";
  }
  return "";
}

}  // namespace neox
