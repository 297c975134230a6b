// What a model is: shapes, kinds of layers, how parameters start; and how many it has.
#pragma once
#include <cstdint>
#include <optional>

namespace neox {

enum class Activation {
  kGeluErf,
  kGeluTanh,
  kRelu,
  kSilu,
  kSoftsign,
  kMish,
  kSigmoid,
  kIdentity,
};
enum class Norm { kLayerNorm, kRmsNorm };
// What a norm learns. kOne goes with kRmsNorm and is ScaleNorm (Nguyen and Salazar, arXiv
// 1910.05895): the weight is the length that vectors get, norm_eps the least length they had.
enum class NormWeights {
  kEach,  // a weight for each value, and in a LayerNorm a bias
  kOne,   // a weight for all values
  kNone,
};
enum class PositionEmbedding { kRotary, kNone, kLearned, kSinusoidal, kAlibi, kRelative };
enum class InitMethod {
  kNormal,                      // N(0, init_std)
  kScaledNormal,                // N(0, init_std / sqrt(2 L))
  kSingleResidualScaledNormal,  // N(0, init_std / sqrt(L))
  kSmallInit,                   // N(0, sqrt(2 / (5 h)))
  kWangInit,                    // N(0, 2 / (L sqrt(h)))
  kXavierUniform,
  kXavierNormal,
  kOrthogonal,
  kScaledOrthogonal,
};

// How rotary frequencies are changed for contexts longer than original_positions; factor 1: not.
enum class RotaryKind {
  kLlama3,  // long waves are stretched
  kLinear,  // all waves are: positions are divided by the factor
  kYarn     // dimensions that turn seldom are, and scores are sharper
};
struct RotaryScaling {
  RotaryKind kind = RotaryKind::kLlama3;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // of kLlama3
  double beta_fast = 32, beta_slow = 1;              // of kYarn: turns in the original context
  bool truncate = true;                              // of kYarn: to whole dimensions
  double attention_factor = 1;                       // of rotated queries and keys; 1 but for kYarn
  int64_t original_positions = 8192;                 // of kLlama3 and kYarn
  bool operator==(const RotaryScaling&) const = default;
};
// YaRN's where none is given (transformers: get_mscale).
double yarn_attention_factor(double factor, double mscale = 1);

// The maximal update parametrization (Yang et al., "Tensor Programs V", arXiv 2203.03466): learning
// rate and initial values that are tuned on a narrow model hold for a wide one.
struct MupConfig {
  double width = 1;                     // hidden size, of that of the narrow model
  double init_scale = 1;                // of initial weights
  double score_temperature = 1;         // scores q k^T are divided by it and D, not by D's root
  double logit_temperature = 1;         // logits are divided by it and the width
  double embedding = 1, positions = 1;  // what embeddings, and positions in them, are multiplied by
};

enum class Router {
  kTopK,      // the experts whose softmax is greatest
  kSinkhorn,  // training shares the tokens of a micro-batch out evenly; else the greatest
};
// Mixtures of experts without capacity limits (Gale et al., "MegaBlocks", arXiv 2211.15841): in
// some layers the MLP is one of many, without biases, and each token goes through top_k of them.
struct MoeConfig {
  int64_t experts = 0, top_k = 1;
  int64_t interval = 1;      // layers 0, interval, 2 interval ... have experts
  int64_t intermediate = 0;  // columns of an expert's output matrix
  Router router = Router::kSinkhorn;
  bool normalized = false;  // the weights of a token's experts are divided by their sum
};

struct ModelConfig {
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t seq = 0;           // tokens of a training sample
  int64_t positions = 0;     // max_position_embeddings
  int64_t vocab = 0;         // padded; 0 until the tokenizer, the config or a checkpoint says it
  int64_t intermediate = 0;  // columns of the MLP's output matrix
  PositionEmbedding position_embedding = PositionEmbedding::kRotary;
  double rotary_pct = 1.0, rotary_base = 10000, norm_eps = 1e-5;
  bool parallel_residual = false;  // gpt_j_residual
  bool tied_embedding = true;      // not no_weight_tying
  Activation activation = Activation::kGeluErf;
  InitMethod init_method = InitMethod::kNormal, output_init_method = InitMethod::kScaledNormal;
  double init_std = 0.02;
  double hidden_dropout = 0, attention_dropout = 0;
  int64_t kv_heads = 0;         // num_kv_heads; 0: as many as heads
  int64_t given_head_size = 0;  // kv_channels; 0: hidden / heads
  int64_t window = 0;           // a token sees itself and so many before it; 0: all
  Norm norm = Norm::kLayerNorm;
  NormWeights norm_weights = NormWeights::kEach;
  bool gated = false;  // the MLP is activation(gate) * up
  bool attention_bias = true, mlp_bias = true;
  bool qkv_bias = false;        // biases of queries, keys and values, where attention has no others
  bool tied_norms = false;      // gpt_j_tied: attention and MLP share a norm
  bool qk_norm = false;         // norms over each head of queries and keys
  bool embedding_norm = false;  // one of the tokens' embeddings, as in BLOOM
  RotaryScaling rotary_scaling;
  int64_t rpe_buckets = 32, rpe_max_distance = 128;  // of kRelative, T5's
  std::optional<MupConfig> mup;
  std::optional<MoeConfig> moe;
  bool scores = false;  // a reward model: the head makes one number of a token, not logits

  int64_t head_size() const { return given_head_size > 0 ? given_head_size : hidden / heads; }
  int64_t head_columns() const { return heads * head_size(); }        // of all queries
  int64_t groups() const { return kv_heads > 0 ? kv_heads : heads; }  // of keys and values
  // Beside the mean of the squares of that many values, whose root they are divided by.
  double norm_epsilon(int64_t values) const {
    bool of_length = norm_weights == NormWeights::kOne;
    return of_length ? norm_eps * norm_eps / static_cast<double>(values) : norm_eps;
  }
  bool has_norm_bias() const {
    return norm == Norm::kLayerNorm && norm_weights == NormWeights::kEach;
  }
  // Of a norm over that many values; a bias has as many.
  int64_t norm_weight_count(int64_t values) const {
    return norm_weights == NormWeights::kEach ? values : norm_weights == NormWeights::kOne;
  }
  bool has_qkv_bias() const { return attention_bias || qkv_bias; }
  int64_t group_queries() const { return heads / groups(); }
  int64_t mlp_inputs() const { return gated ? 2 * intermediate : intermediate; }
  // Of an expert, as mlp_inputs() of an MLP.
  int64_t expert_inputs() const { return moe ? (gated ? 2 : 1) * moe->intermediate : 0; }
  int64_t experts() const { return moe ? moe->experts : 1; }
  int64_t experts_of_token() const { return moe ? moe->top_k : 1; }
  bool has_experts(int64_t layer) const { return moe && layer % moe->interval == 0; }
  // Of n layers in a row the most that have experts.
  int64_t expert_layers(int64_t n) const {
    return moe ? (n + moe->interval - 1) / moe->interval : 0;
  }
  // What these are multiplied by: q k^T, logits, the sum of the embeddings, positions in it.
  double score_scale() const;
  double logit_scale() const { return mup ? 1 / (mup->width * mup->logit_temperature) : 1; }
  double embedding_scale() const { return mup ? mup->embedding : 1; }
  double position_scale() const { return mup ? mup->positions : 1; }
};

// What the configuration calls the norm ("rmsnorm"), and the key of its epsilon.
const char* norm_name(const ModelConfig& model);
const char* norm_epsilon_key(const ModelConfig& model);

// Exact number of parameters; vocab must be known (padded).
int64_t num_parameters(const ModelConfig& model);

struct ParameterParts {
  int64_t embedding = 0, embedding_norm = 0, positions = 0, final_norm = 0, head = 0;
  struct Block {        // of one layer
    int64_t all = 0;    // parameters
    int64_t whole = 0;  // of these, what tensor parallelism does not split
    int64_t used = 0;   // of all, what a token goes through
  } dense, experts;     // without and with experts; the latter 0 where no layer has any
};
ParameterParts parameter_parts(const ModelConfig& model);
// Of n layers in a row, at most.
int64_t of_layers(const ModelConfig& model, int64_t n, int64_t ParameterParts::Block::*part);

}  // namespace neox
