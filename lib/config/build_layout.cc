// Layout, tokenizer.
#include <algorithm>

#include "config/build.h"

namespace neox {
namespace {

// The ranks that share one copy of the state; 0: all data ranks.
int64_t read_shard(KeyReader& keys, int64_t zero_stage) {
  const std::string key = "zero_optimization.mics_shard_size";
  int64_t shard = keys.integer(key);
  keys.require(shard == -1 || shard >= 1, key, key, " is ", shard,
               "; it must be a number of ranks, or -1 for all data ranks");
  keys.require(shard <= 1 || zero_stage > 0, key, key, " is ", shard,
               ", but stage 0 shares nothing; set zero_optimization.stage to 1, 2 or 3");
  return std::max<int64_t>(shard, 0);
}

bool read_sequence_parallel(KeyReader& keys, const ModelConfig& model, int64_t tensor) {
  const std::string key = "sequence_parallel";
  if (!keys.flag(key)) return false;
  if (tensor == 1)
    keys.note(concat(keys.where(key), ": ", key, " does nothing where model_parallel_size is 1"));
  keys.require(model.seq % tensor == 0, key, key, ": model_parallel_size ", tensor, " (",
               keys.where("model_parallel_size"), ") does not divide seq_length ", model.seq, " (",
               keys.where("seq_length"), "), whose tokens it shares out");
  return tensor > 1;
}

}  // namespace

LayoutConfig read_layout(KeyReader& keys, const ModelConfig& model) {
  LayoutConfig layout;
  layout.pipe = std::max<int64_t>(keys.integer_from("pipe_parallel_size", 0, 1 << 20), 1);
  keys.record("pipe_parallel_size", std::to_string(layout.pipe));
  layout.tensor = std::max<int64_t>(keys.integer_from("model_parallel_size", 0, 1 << 20), 1);
  keys.record("model_parallel_size", std::to_string(layout.tensor));
  keys.require(model.layers >= layout.pipe, "pipe_parallel_size", "pipe_parallel_size is ",
               layout.pipe, ", more than the ", model.layers, " layers (", keys.where("num_layers"),
               ")");
  keys.require(model.heads % layout.tensor == 0, "model_parallel_size", "model_parallel_size ",
               layout.tensor, " does not divide num_attention_heads ", model.heads, " (",
               keys.where("num_attention_heads"), ")");
  keys.require(model.groups() % layout.tensor == 0, "model_parallel_size", "model_parallel_size ",
               layout.tensor, " does not divide num_kv_heads ", model.groups(), " (",
               keys.where("num_kv_heads"), ")");
  keys.require(model.intermediate % layout.tensor == 0, "model_parallel_size",
               "model_parallel_size ", layout.tensor, " does not divide intermediate_size ",
               model.intermediate, " (", keys.where("intermediate_size"), ")");
  keys.require(!model.moe || model.moe->intermediate % layout.tensor == 0, "model_parallel_size",
               "model_parallel_size ", layout.tensor, " does not divide the ",
               model.moe ? model.moe->intermediate : 0, " columns of an expert (",
               keys.where("moe_num_experts"), ")");
  layout.splits_tokens = read_sequence_parallel(keys, model, layout.tensor);
  bool parts_of_rows = layout.pipe > 1 && !layout.splits_tokens;
  keys.require(model.hidden % layout.tensor == 0 || !(parts_of_rows || model.scores),
               "model_parallel_size", "model_parallel_size ", layout.tensor,
               " does not divide hidden_size ", model.hidden, " (", keys.where("hidden_size"),
               "), ",
               model.scores ? "by which the weights of a reward are shared out"
                            : "by which ranks share out what goes to the next pipeline stage; "
                              "sequence_parallel: true needs no such division");
  layout.partition_method = keys.text("pipe_partition_method");
  const std::string& method = layout.partition_method;
  keys.require(method == "type:transformer|mlp" || method == "uniform" || method == "parameters",
               "pipe_partition_method", "pipe_partition_method is \"", method,
               "\"; supported are \"type:transformer|mlp\", \"uniform\" and \"parameters\"");
  layout.zero_stage = keys.integer_from("zero_optimization.stage", 0);
  keys.require(layout.zero_stage <= 3, "zero_optimization.stage",
               "zero_optimization.stage: ", layout.zero_stage,
               " is unknown; supported are 0, 1, 2 and 3");
  if (keys.given("zero_stage"))
    keys.require(keys.maybe_integer("zero_stage") == layout.zero_stage, "zero_stage",
                 "zero_stage is a copy of zero_optimization.stage, which is ", layout.zero_stage,
                 " (", keys.where("zero_optimization.stage"), "); set that one and remove this");
  keys.mark("zero_stage", Effect::kInput);
  layout.shard = read_shard(keys, layout.zero_stage);
  return layout;
}

TokenizerConfig read_tokenizer(KeyReader& keys, const LayoutConfig& layout) {
  TokenizerConfig tokenizer;
  tokenizer.type = keys.choice("tokenizer_type");
  tokenizer.vocab_file = keys.text("vocab_file");
  tokenizer.merge_file = keys.text("merge_file");
  if (tokenizer.type == "HFGPT2Tokenizer") {
    tokenizer.type = "GPT2BPETokenizer";
    if (!tokenizer.vocab_file.empty()) {
      tokenizer.merge_file = tokenizer.vocab_file / "merges.txt";
      tokenizer.vocab_file /= "vocab.json";
    }
  }
  bool gpt2 = tokenizer.type == "GPT2BPETokenizer";
  keys.require(!gpt2 || tokenizer.vocab_file.empty() || !tokenizer.merge_file.empty(), "vocab_file",
               "vocab_file is ", tokenizer.vocab_file.string(),
               ", and tokenizer_type GPT2BPETokenizer (", keys.where("tokenizer_type"),
               ") needs merge_file too; for a Hugging Face tokenizer.json write tokenizer_type: "
               "HFTokenizer");
  tokenizer.pad_to_multiple = keys.integer_from("make_vocab_size_divisible_by", 1, 1 << 20);
  tokenizer.padded_vocab_size = keys.maybe_integer("padded_vocab_size");
  if (auto padded = tokenizer.padded_vocab_size)
    keys.require(*padded > 0 && *padded <= 1 << 30 && *padded % layout.tensor == 0,
                 "padded_vocab_size", "padded_vocab_size is ", *padded,
                 "; it must be a positive multiple of ", "model_parallel_size ", layout.tensor,
                 " (", keys.where("model_parallel_size"), ")");
  return tokenizer;
}

}  // namespace neox
