// The decoders that GPT-NeoX's configurations describe (GPT-NeoX, GPT-2, LLaMA ...): the layers of
// this rank's pipeline stage, split over tp. The same code runs on one rank and on many.
//
// B T H D V: batch, time, heads, head size, vocabulary; H and V count this rank's share of tp, and
// so does K, the heads of keys and values.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "config/config.h"
#include "model/kv_cache.h"
#include "model/parameters.h"
#include "ops/rotary.h"
#include "param/param_buffer.h"

namespace neox {

// A micro-batch on the device.
struct Batch {
  Tensor tokens, targets;    // [B, T] int64
  Tensor weights;            // [B, T] float; 0: not counted
  int64_t first_sample = 0;  // number of the first sample in the run: keys dropout
  // [B, T] int64: the number of each token's document in the sample, outside of which it sees
  // nothing; undefined: it sees all tokens before it.
  Tensor documents = {};
  Tensor positions = {};  // [B, T] int64; undefined: 0 .. T - 1
};

struct ModelOptions {
  enum Start { kInitialValues, kZeros } start = kInitialValues;  // kZeros: a checkpoint follows
  Dtypes dtypes;
  at::Device device = at::kCPU;
  GradientKeeping keeping = GradientKeeping::kFull;
  int64_t recompute_layers = 0;  // 0: keep all activations
  int64_t seed = 1234;           // of initial values and dropout
  std::string partition;         // pipe_partition_method
  Chunking chunking = Chunking::kElements;
};

struct DecodeSource;

// The layers [first, last) of each of `stages` pipeline stages.
std::vector<std::pair<int64_t, int64_t>> partition_layers(const ModelConfig& config, int stages,
                                                          const std::string& method);

class GptNeoX {
 public:
  // Collective over the mesh, which must outlive the model. Parameters hold their initial values.
  GptNeoX(const ModelConfig& config, Mesh& mesh, const ModelOptions& options);

  // One micro-batch through this stage. x: the hidden state [B, T, hidden] that the stage before
  // sent; undefined on the first stage. Returns the hidden state, or on the last stage the weighted
  // SUM of token losses (0-dim double), whose gradients are multiplied by `seed` (0-dim double):
  // call backward with 1. Collective over tp.
  Tensor forward(const Tensor& x, const Batch& batch, const Tensor& seed);

  // The same for tokens [B, t] that follow those in the rows of the cache, without gradients:
  // hidden states [B, t, hidden], or on the last stage the logits [B, V of all ranks] of the last
  // token. Collective over tp. Advances the cache.
  Tensor generate_step(const Tensor& x, const Tensor& tokens, KvCache& cache);
  // Rows without positions yet. The model must outlive it, and its parameters keep their values.
  KvCache new_cache(int64_t batch, int64_t capacity);

  const ModelConfig& config() const { return config_; }
  Mesh& mesh() { return mesh_; }
  std::vector<int64_t> hidden_shape(const Batch& batch) const;
  at::TensorOptions hidden_options() const;
  std::vector<ParamBuffer*> buffers();
  // By global name; a leaf. Throws for a parameter of another stage.
  const Tensor& param(const std::string& name) const;

 private:
  struct Pass {  // what a layer must know beside its input; recomputation keeps a copy
    int64_t first_sample = 0;
    bool training = false;
    KvCache* cache = nullptr;  // generation
    Tensor documents = {};     // as in Batch
    Tensor positions = {};     // as in Batch
    Tensor mask = {};          // to be added to the scores, as of score_mask(); or undefined
    Tensor bias = {};          // the same, with gradients, as of score_bias(); only with a mask
    RotaryTable rotary = {};   // of the batch's positions; undefined: 0 .. T - 1
  };
  Pass pass_of(const Batch& batch) const;
  Pass cached_pass(int64_t T, KvCache& cache) const;
  DecodeSource decode_source(int64_t capacity);
  Tensor attend_prompt(const Tensor& q, const Tensor& k, const Tensor& v);
  void add_buffers();
  void add_position_tables();
  void add_buffer(const std::string& name, const std::vector<ModelParam>& params,
                  Communicator* stages = nullptr);
  Sharing sharing(bool split, Communicator* stages) const;

  Tensor embed(const Tensor& tokens, const Pass& pass);
  Tensor embed_positions(int64_t T, const Pass& pass);
  Tensor layers(Tensor x, const Pass& pass);
  Tensor layer(const Tensor& x, int64_t l, const Pass& pass);
  Tensor attention(const Tensor& x, int64_t l, const Pass& pass);
  Tensor query_key_value(const Tensor& x, int64_t l, const Pass& pass);
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l, const Pass& pass);
  Tensor attend_in_documents(const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& documents);
  Tensor attend_by_probabilities(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                                 const Pass& pass);
  Tensor attend_whole(const Tensor& q, const Tensor& k, const Tensor& v, const Pass& pass);
  Tensor attend_in_fp32(const Tensor& q, const Tensor& k, const Tensor& v, const Pass& pass);
  Tensor attend_cached(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                       const Pass& pass);
  Tensor for_queries(const Tensor& keys) const;
  bool scores_depend_on_distance() const;
  Tensor score_mask(int64_t first, int64_t last, const Tensor& documents) const;
  Tensor score_bias(int64_t first, int64_t last) const;
  Tensor mlp(const Tensor& x, int64_t l);
  Tensor norm(const Tensor& x, const Tensor& weight, const Tensor& bias) const;
  Tensor norm(const Tensor& x, const std::string& name) const;
  Tensor drop(const Tensor& x, double p, const std::string& site, const Pass& pass,
              int64_t offset = 0);
  std::string prefix(int64_t l) const { return "layers." + std::to_string(l) + "."; }
  Tensor bias(const std::string& name) const;
  const Tensor& head_weight() const;

  ModelConfig config_;
  Mesh& mesh_;
  ModelOptions options_;
  int64_t first_layer_ = 0, last_layer_ = 0;
  std::vector<std::unique_ptr<ParamBuffer>> buffers_;
  std::map<std::string, Tensor> params_;
  RotaryTable rotary_;
  Tensor sinusoids_;  // [positions, hidden]; undefined: positions are not added as sinusoids
  Tensor slopes_;     // [H, 1, 1] of ALiBi; undefined: none
};

}  // namespace neox
