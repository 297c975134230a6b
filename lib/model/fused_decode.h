// Steps of one token, and prompts, on a CPU, for the whole model on one rank: a layer is three to
// five passes over its weights by a team of threads, with activations in float. A step runs at the
// rate of the memory, a prompt at that of products: of bf16 where the processor has kernels for it
// (bf16_multiplies()), else of float, for which bf16 is converted in parts. Any model
// that GptNeoX runs in float or bf16, but for prompts of one with experts; the weights stay where
// they are, and where PackedModel has them too, steps take those.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "model/kv_cache.h"
#include "model/packed_model.h"
#include "ops/norm.h"
#include "ops/rotary.h"
#include "ops/row_kernels.h"
#include "ops/team.h"

namespace neox {

using at::Tensor;

// What the steps take from a model.
struct DecodeSource {
  ModelConfig config;
  int64_t first_layer = 0, last_layer = 0;
  std::function<Tensor(const std::string&)>
      param;  // undefined where the model has none of the name
  std::function<NormWeight(const std::string&, int64_t)> norm;  // over so many values
  RotaryTable rotary;
  Tensor positions;  // [positions, hidden], added to embeddings; or undefined
  Tensor added;      // to scores, [H, capacity]: the last column for the token itself; or undefined
  // Of a prompt's queries [1, H, T, D], keys and values [1, K, T, D], all of the weights' type.
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)> attend;
  std::shared_ptr<PackedModel> packed = nullptr;  // null: its weights may change
};

inline WeightType weight_type(const Tensor& x) {
  return x.scalar_type() == at::kFloat ? WeightType::kFloat : WeightType::kBfloat16;
}

class FusedDecode {
 public:
  explicit FusedDecode(const DecodeSource& source);
  // tokens [B, 1] int64 for the cache's rows: logits [B, V], float. The cache grows by one.
  Tensor step(const Tensor& tokens, KvCache& cache);
  // How many prompts of such lengths, from the first one on, prompts() takes at once, so that each
  // gives the same bits as alone. 0 where it is not the fastest way: bf16 is not slow on every
  // processor.
  size_t prompts_together(std::span<const int64_t> lengths) const;
  // tokens int64 of all prompts, one behind the other, for a cache of a row for each, without
  // positions: the logits [B, V] of the last ones.
  Tensor prompts(const Tensor& tokens, std::span<const int64_t> lengths, KvCache& cache,
                 const AfterLayer& after_layer = {});

 private:
  struct Vector {
    Tensor values;  // float, or undefined
    const float* data() const {
      return values.defined() ? values.const_data_ptr<float>() : nullptr;
    }
  };
  struct Norm {
    Vector weight, bias;
    RowNorm kernel;
  };
  struct Linear {
    Tensor values;
    WeightMatrix weight;  // those values
    Vector bias;
  };
  struct Mlp {
    Linear in, out;
  };
  struct Layer {
    Norm attention_norm, mlp_norm, query_norm, key_norm;
    Linear qkv, dense;
    Mlp mlp;        // where there are no experts
    Linear router;  // of these
    std::vector<Mlp> experts = {};
  };
  struct Buffer {
    Tensor values;  // [rows, stride] float
    FloatRows rows(int64_t count, int64_t first = 0) const {
      return {values.mutable_data_ptr<float>() + first * values.size(1), count, values.size(1)};
    }
  };
  struct Inner {  // of MLPs: what the second matrix multiplies, and gated ones' pairs
    Buffer rows, pairs;
  };
  struct Item {  // of attention: the queries of a row that see the same keys
    int64_t row, group, position;
  };
  struct Route {
    int64_t expert, row;
    float weight;  // of what the expert gives
  };
  struct Scratch {  // of one thread
    Buffer normed, row;
    Buffer sorted, scores;      // by expert: the rows that it takes; of all experts, of each row
    std::vector<Route> routes;  // of the sorted rows
  };

  Norm norm(const DecodeSource& source, const std::string& name, int64_t size,
            double factor = 1) const;
  static Linear linear(const DecodeSource& source, const std::string& name);
  static Linear linear_of(const Tensor& weight, const Tensor& bias = {});
  Layer layer_of(const DecodeSource& source, int64_t l) const;
  static std::vector<Mlp> experts_of(const DecodeSource& source, const std::string& mlp);
  std::vector<WeightMatrix*> matrices();
  void take_packed(int threads);
  void reserve(int64_t rows, int64_t capacity, int threads);
  Tensor embedded(const Tensor& tokens, const Tensor& positions) const;
  void place_heads(const Layer& layer, float* heads, int64_t position) const;
  void store_heads(size_t l, const KvCache& cache, const float* heads, const Item& item) const;
  void layer(size_t l, Team& team, KvCache& cache);
  void norm_rows(const Norm& norm, Scratch& scratch) const;
  void project(const Linear& linear, Team::Share share, const FloatRows& x,
               const FloatRows& y) const;
  void mlp_in(const Layer& layer, Team& team, Scratch& scratch) const;
  void mlp_out(const Layer& layer, Team& team, const Scratch& scratch) const;
  Team::Share fill(const Inner& inner, int64_t first, const Mlp& expert, Team& team,
                   const FloatRows& x) const;
  void choose_routes(const Layer& layer, Scratch& scratch) const;
  void activate(const float* pairs, float* y, Team::Share columns) const;
  void head(Team& team, const Tensor& logits);
  void attend(size_t l, Team& team, KvCache& cache);
  int64_t first_position(const Item& item) const;
  const void* first_seen(const Tensor& keys, const Item& item) const;
  void attend_group(size_t l, KvCache& cache, const Item& item, const void* next, float* scores);
  void add_output(const Linear& linear, Team& team, const Buffer& in) const;
  void reserve_prompts(std::span<const int64_t> lengths, int threads);
  void prompt_layer(size_t l, const KvCache& cache, std::span<const int64_t> lengths, int threads);
  void prompt_attention(size_t l, const KvCache& cache, std::span<const int64_t> lengths);
  void prompt_keys(size_t l, const KvCache& cache, int threads);
  void prompt_norm(const Norm& norm, Team& team);
  void prompt_product(const Linear& linear, Team::Share columns, Team& team, const Tensor& x,
                      const Tensor& y);
  template <class Use>
  void prompt_parts(const Linear& linear, Team& team, Team::Share columns, int64_t multiple,
                    const Tensor& whole, const Use& use);
  static void half_product(const Linear& linear, Team::Share columns, const Tensor& x,
                           const Tensor& y, bool add);
  void float_product(const Linear& linear, Team::Share columns, const Tensor& scratch,
                     const Tensor& x, const Tensor& y) const;
  void prompt_heads(size_t l, const KvCache& cache, Team::Share groups, Team::Share tokens,
                    const FloatRows& qkv);
  void prompt_mlp(const Layer& layer, Team& team);
  void prompt_output(const Linear& linear, Team& team, const Tensor& in);

  ModelConfig config_;
  const RowKernels& kernels_;
  Pointwise activation_;  // null: none
  std::vector<Layer> layers_;
  Norm embedding_norm_, final_norm_;
  Linear head_;
  Tensor embedding_, positions_, cos_, sin_, added_;
  WeightType type_;
  std::shared_ptr<PackedModel> packed_;  // null: matrices are taken as they are, or all are taken
  int64_t rows_ = 0;
  Buffer x_, qkv_, attended_, out_;
  Inner inner_, expert_inner_;
  std::vector<Scratch> scratch_;
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)> attend_;
  struct Place {
    int64_t row, position;
  };
  struct Prompts {                   // [tokens, ...]
    std::vector<Place> places;       // of the tokens
    bool few = false;                // tokens of each
    Tensor x, qkv, mlp, out;         // float
    Tensor queries;                  // of the weights' type
    Tensor normed, attended, inner;  // what products take: bf16 where it is multiplied, or float
    std::vector<Tensor> parts;       // of one thread, float: a part of a matrix, or a row
  } prompt_;
};

}  // namespace neox
