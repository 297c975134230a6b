// What the tiny models of the layout tests are.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/thread.h"
#include "model/gpt_neox.h"
#include "train/step.h"

namespace neox {

struct TinyOptions {
  ModelConfig model{.layers = 5,
                    .hidden = 20,
                    .heads = 4,
                    .seq = 7,
                    .positions = 7,
                    .vocab = 28,
                    .intermediate = 80,
                    .rotary_pct = 0.8,
                    .parallel_residual = true,
                    .tied_embedding = false,
                    .activation = Activation::kGeluTanh,
                    .init_method = InitMethod::kNormal,
                    .init_std = 0.3,
                    .hidden_dropout = 0.1,
                    .attention_dropout = 0.1};
  Dtypes dtypes{at::kDouble, at::kDouble, at::kDouble};
  PrecisionConfig precision{.type = Precision::kFp64};
  int64_t batch = 5, micro = 1;  // samples of a step, of a micro-batch
  // Samples of each step; or `batch`.
  std::function<int64_t(int64_t step)> batch_of_step = {};
  int64_t batch_of(int64_t step) const { return batch_of_step ? batch_of_step(step) : batch; }
  std::optional<PreferenceConfig> preference = {};
  int64_t rows_of_sample() const {
    return preference && preference->kind != PreferenceConfig::Kind::kKto ? 2 : 1;
  }
  int64_t recompute = 0;
  bool masked = true;
  // Tokens that count of each sample, by step; the others are cut off, or have weight 0.
  std::function<int64_t(int64_t step)> seq_of_step = {};
  bool cut = true;
  int64_t end_of_document = -1;  // a third of the tokens, and attention and positions follow it
  Keeping keeping = Keeping::kAll;
  bool splits_tokens = false;
  at::Device device = at::kCPU;
  std::function<std::unique_ptr<GraphRecorder>()> recorder = {};  // of each rank; or none
  std::function<std::shared_ptr<SideStream>()> side = {};         // of each rank; or the device's
  // Over which a rank trains; or the threads' own.
  std::function<std::unique_ptr<Communicator>(Communicator& threads, Control&)> world = {};
  // Called by each rank after each step; or nothing.
  std::function<void(TrainStep&, Communicator& world)> after_step = {};
  OptimizerConfig optimizer{
      .lr = 1e-3, .beta2 = 0.95, .weight_decay = 0.1, .gradient_clipping = 0.5};
};

// What other models have.
struct ModelOption {
  const char* name = "";
  void (*set)(TinyOptions&) = nullptr;
};

inline void like_gpt2(TinyOptions& o) {
  o.model.position_embedding = PositionEmbedding::kLearned;
  o.model.parallel_residual = false;
  o.model.tied_embedding = true;
}

inline void like_llama(TinyOptions& o) {
  o.model.norm = Norm::kRmsNorm;
  o.model.activation = Activation::kSilu;
  o.model.gated = true;
  o.model.kv_heads = 2;
  o.model.parallel_residual = o.model.attention_bias = o.model.mlp_bias = false;
  o.model.hidden_dropout = o.model.attention_dropout = 0;
}

inline void with_relative_positions(TinyOptions& o) {
  o.model.position_embedding = PositionEmbedding::kRelative;
  o.model.rpe_buckets = 4;
  o.model.rpe_max_distance = 5;
}

inline void with_mup(TinyOptions& o) {
  o.model.mup = MupConfig{.width = 1.5,
                          .init_scale = 2,
                          .score_temperature = 0.5,
                          .logit_temperature = 0.75,
                          .embedding = 3,
                          .positions = 0.5};
  o.optimizer.width = 1.5;
}

inline const std::vector<ModelOption> kModelOptions = {
    {"Gpt2", like_gpt2},
    {"Gpt2WithDocuments", [](TinyOptions& o) { like_gpt2(o), o.end_of_document = 3; }},
    {"Llama", like_llama},
    {"LlamaWithWindow",
     [](TinyOptions& o) {
       like_llama(o);
       o.model.window = 2;
       o.model.tied_embedding = true;
     }},
    {"GroupedQueriesWithDropout", [](TinyOptions& o) { o.model.kv_heads = 2; }},
    {"Alibi",
     [](TinyOptions& o) {
       o.model.position_embedding = PositionEmbedding::kAlibi;
       o.model.kv_heads = 2;
       o.end_of_document = 3;
     }},
    {"AlibiWithoutDropout",
     [](TinyOptions& o) {
       o.model.position_embedding = PositionEmbedding::kAlibi;
       o.model.hidden_dropout = o.model.attention_dropout = 0;
       o.recompute = 2;
       o.end_of_document = 3;
     }},
    {"RelativePositions", with_relative_positions},
    {"RelativePositionsRecomputed",
     [](TinyOptions& o) {
       o.model.position_embedding = PositionEmbedding::kRelative;
       o.model.hidden_dropout = o.model.attention_dropout = 0;
       o.recompute = 1;
       o.end_of_document = 3;
       o.keeping = Keeping::kParameters;
     }},
    {"GatedWithBiasAndOneNorm",
     [](TinyOptions& o) {
       o.model.gated = true;
       o.model.tied_norms = true;
       o.model.activation = Activation::kMish;
     }},
    {"BiasesOfQueriesKeysAndValues",
     [](TinyOptions& o) {
       like_llama(o);
       o.model.qkv_bias = true;
     }},
    {"HeadsOfAnotherSize", [](TinyOptions& o) { o.model.given_head_size = 6; }},
    {"ANormOfEmbeddings", [](TinyOptions& o) { o.model.embedding_norm = true; }},
    {"NormsOfQueriesAndKeys", [](TinyOptions& o) { o.model.qk_norm = true; }},
    {"ScaleNorm",
     [](TinyOptions& o) {
       o.model.norm = Norm::kRmsNorm;
       o.model.norm_weights = NormWeights::kOne;
       o.model.qk_norm = o.model.embedding_norm = true;
     }},
    {"NothingButMatrices",
     [](TinyOptions& o) {
       like_llama(o);
       o.model.norm = Norm::kLayerNorm;
       o.model.norm_weights = NormWeights::kNone;
       o.model.qk_norm = o.model.embedding_norm = true;
     }},
    {"RmsNormsOfQueriesAndKeys",
     [](TinyOptions& o) {
       like_llama(o);
       o.model.qk_norm = true;
       o.model.position_embedding = PositionEmbedding::kSinusoidal;
     }},
    {"Preferences", [](TinyOptions& o) { o.preference = PreferenceConfig{.beta = 0.3}; }},
    {"AnswersWithRewards",
     [](TinyOptions& o) {
       o.micro = 2;
       o.preference = PreferenceConfig{
           .kind = PreferenceConfig::Kind::kKto, .beta = 0.3, .undesirable_weight = 0.5};
     }},
    {"MupLikeGpt2", [](TinyOptions& o) { like_gpt2(o), with_mup(o); }},
    {"MupWithoutDropout",
     [](TinyOptions& o) {
       with_mup(o);
       o.model.hidden_dropout = o.model.attention_dropout = 0;
     }},
};

// Those that write no text.
inline const std::vector<ModelOption> kScoreOptions = {
    {"Scores", [](TinyOptions& o) {
       o.model.scores = true;
       o.preference = PreferenceConfig{.kind = PreferenceConfig::Kind::kScores, .z_loss = 0.125};
     }}};

// All whose steps can be recorded.
inline std::vector<ModelOption> recorded_options() {
  std::vector<ModelOption> all = kModelOptions;
  all.insert(all.end(), kScoreOptions.begin(), kScoreOptions.end());
  return all;
}

// Those whose steps cannot be recorded.
inline const std::vector<ModelOption> kExpertOptions = {
    {"Experts",
     [](TinyOptions& o) {
       o.model.moe = MoeConfig{.experts = 5,
                               .top_k = 2,
                               .interval = 2,
                               .intermediate = 40,
                               .router = Router::kTopK,
                               .normalized = true};
     }},
    {"ExpertsLikeGpt2BySinkhorn",
     [](TinyOptions& o) {
       like_gpt2(o);
       o.model.hidden_dropout = o.model.attention_dropout = 0;
       o.recompute = 2;
       o.keeping = Keeping::kChunks;
       o.model.moe = MoeConfig{.experts = 4, .intermediate = 36};
     }},
    {"ExpertsLikeLlamaWithMuon",
     [](TinyOptions& o) {
       like_llama(o);
       o.keeping = Keeping::kParameters;
       o.optimizer.kind = OptimizerKind::kMuon;
       o.optimizer.momentum = 0.95;
       o.model.moe = MoeConfig{.experts = 3, .top_k = 2, .interval = 3, .intermediate = 24};
     }},
};

// All that write texts.
inline std::vector<ModelOption> all_options() {
  std::vector<ModelOption> all = kModelOptions;
  all.insert(all.end(), kExpertOptions.begin(), kExpertOptions.end());
  return all;
}

}  // namespace neox
