#include "config/config.h"

#include <algorithm>
#include <cmath>

#include "config/build.h"
#include "config/check.h"
#include "config/merge.h"

namespace neox {
namespace {

// What cannot be in a step that is recorded as a CUDA graph.
void check_recording(const KeyReader& keys, const Config& config) {
  if (!config.train.cuda_graph.value_or(false)) return;
  const std::string key = "enable_cuda_graph";
  keys.require(config.layout.zero_stage < 3, key,
               "enable_cuda_graph: true, but memory that is given back within "
               "a step, as by zero_optimization.stage: 3 (",
               keys.where("zero_optimization.stage"), "), cannot be recorded; remove one of them");
  keys.require(!config.model.moe, key,
               "enable_cuda_graph: true, but a step of a mixture of experts (",
               keys.where("moe_num_experts"),
               "), whose experts get other numbers of tokens each time, cannot be recorded; remove "
               "one of them");
  keys.require(config.optimizer.kind != OptimizerKind::kOneBitAdam, key,
               "enable_cuda_graph: true, but behind freeze_step onebitadam (",
               keys.where("optimizer.type"),
               ") sums momentum in place of gradients, and a recorded step goes on summing these; "
               "remove one of them");
}

// A shell puts other paths in their place; here a directory of that name would be made.
void check_directories(const KeyReader& keys) {
  for (const char* key : {"save", "load", "log_dir", "tensorboard_dir", "tensorboard.output_path",
                          "data_cache_path"}) {
    const Value* given = keys.given(key);
    std::string dir = given ? given->text : "";
    keys.require(
        !dir.starts_with("~/") && !dir.starts_with("$"), key, key, " is ", dir,
        ", and neither ~ nor $NAME stands for anything in a configuration; write the whole "
        "path (./",
        dir, ", where a directory has that name)");
  }
}

}  // namespace

Config load_config(const ConfigOptions& options) {
  Value root = merge_config(options);
  check_keys(root);
  KeyReader keys(root);
  Config config;
  config.model = read_model(keys);
  config.layout = read_layout(keys, config.model);
  config.tokenizer = read_tokenizer(keys, config.layout);
  config.model.vocab = config.tokenizer.padded_vocab_size.value_or(0);
  config.precision = read_precision(keys);
  if (config.layout.zero_stage == 0) config.precision.hysteresis = 0;
  config.optimizer = read_optimizer(keys, config.model);
  keys.require(config.optimizer.kind != OptimizerKind::kOneBitAdam || config.layout.zero_stage == 0,
               "zero_optimization.stage", "optimizer.type: onebitadam (",
               keys.where("optimizer.type"),
               ") compresses what whole replicas send; set zero_optimization.stage to 0");
  config.batch = read_batch(keys);
  config.data = read_data(keys);
  config.train = read_train(keys, config, options.samples_of_epoch);
  check_recording(keys, config);
  if (config.model.moe) config.train.cuda_graph = false;
  config.schedule = read_schedule(keys, config);
  config.checkpoint = read_checkpoint(keys);
  if (options.texts.empty()) check_directories(keys);  // else of a run that has made them
  config.generate = read_generate(keys);
  keys.finish(config);
  return config;
}

bool CheckpointConfig::saves_at(int64_t iteration) const {
  if (std::find(extra_save_iters.begin(), extra_save_iters.end(), iteration) !=
      extra_save_iters.end())
    return true;
  if (factor <= 0) return false;
  if (scale == CheckpointScale::kLinear) return iteration % static_cast<int64_t>(factor) == 0;
  // The whole parts of the powers of the factor, as in NeoX.
  double power = 1;
  while (power < static_cast<double>(iteration) + 1) {
    if (static_cast<int64_t>(power) == iteration) return true;
    power *= factor;
  }
  return false;
}

double ModelConfig::score_scale() const {
  auto D = static_cast<double>(head_size());
  return 1 / (mup ? D * mup->score_temperature : std::sqrt(D));
}

double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

int64_t padded_vocab(const Config& config, int64_t vocab) {
  check_usage(vocab > 0, "the vocabulary of ", config.tokenizer.vocab_file.string(), " (",
              config.where("vocab_file"), ") has no tokens");
  if (auto padded = config.tokenizer.padded_vocab_size) {
    check_usage(*padded >= vocab, config.where("padded_vocab_size"), ": padded_vocab_size is ",
                *padded, ", less than the ", vocab,
                " tokens of the tokenizer; remove the key, or check vocab_file (",
                config.where("vocab_file"), ")");
    return *padded;
  }
  int64_t multiple = config.tokenizer.pad_to_multiple * config.layout.tensor;
  return (vocab + multiple - 1) / multiple * multiple;
}

ParameterParts parameter_parts(const ModelConfig& m) {
  int64_t h = m.hidden, D = m.head_size();
  auto norm = [&](int64_t values) {
    return m.norm_weight_count(values) * (m.has_norm_bias() ? 2 : 1);
  };
  int64_t qkv = (m.heads + 2 * m.groups()) * D, up = m.mlp_inputs();
  int64_t whole =
      norm(h) * (m.tied_norms ? 1 : 2) + (m.qk_norm ? 2 * norm(D) : 0) + (m.attention_bias ? h : 0);
  int64_t both = h * (qkv + m.head_columns()) + (m.has_qkv_bias() ? qkv : 0) + whole;
  using enum PositionEmbedding;
  ParameterParts parts;
  parts.dense.whole = whole + (m.mlp_bias ? h : 0);
  parts.dense.all = both + h * (up + m.intermediate) + (m.mlp_bias ? up + h : 0);
  parts.dense.used = parts.dense.all;
  if (m.moe) {
    int64_t router = m.moe->experts * h, expert = h * (m.expert_inputs() + m.moe->intermediate);
    parts.experts = {.all = both + router + m.moe->experts * expert,
                     .whole = whole + router,
                     .used = both + router + m.moe->top_k * expert};
  }
  parts.embedding = m.vocab * h;
  parts.embedding_norm = m.embedding_norm ? norm(h) : 0;
  parts.positions = m.position_embedding == kLearned    ? m.positions * h
                    : m.position_embedding == kRelative ? m.rpe_buckets * m.heads
                                                        : 0;
  parts.final_norm = norm(h);
  parts.head = m.scores ? h : m.tied_embedding ? 0 : parts.embedding;
  return parts;
}

double state_per_parameter(const OptimizerConfig& optimizer, double share_in_layers) {
  switch (optimizer.kind) {
    case OptimizerKind::kSgd:
      return optimizer.momentum == 0 ? 0 : 1;
    case OptimizerKind::kLion:
      return 1;
    case OptimizerKind::kMuon:
      return 2 - share_in_layers;
    default:
      return 2;
  }
}

int64_t of_layers(const ModelConfig& model, int64_t n, int64_t ParameterParts::Block::*part) {
  ParameterParts p = parameter_parts(model);
  int64_t experts = model.expert_layers(n);
  return (n - experts) * p.dense.*part + experts * p.experts.*part;
}

int64_t num_parameters(const ModelConfig& model) {
  ParameterParts p = parameter_parts(model);
  return p.embedding + p.embedding_norm + p.positions +
         of_layers(model, model.layers, &ParameterParts::Block::all) + p.final_norm + p.head;
}

}  // namespace neox
