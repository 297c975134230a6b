// The decoders that GPT-NeoX's configurations describe (GPT-NeoX, GPT-2, LLaMA ...): the layers of
// this rank's pipeline stage, split over tp. The same code runs on one rank and on many.
//
// B T H D V: batch, time, heads, head size, vocabulary; H and V count this rank's share of tp, and
// so does K, the heads of keys and values.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "config/config.h"
#include "model/graphs.h"
#include "model/kv_cache.h"
#include "model/packed_model.h"
#include "model/parameters.h"
#include "model/sequence_parallel.h"
#include "ops/dropout.h"
#include "ops/norm.h"
#include "ops/rotary.h"
#include "ops/score_rule.h"
#include "param/param_buffer.h"

namespace neox {

// A micro-batch on the device.
struct Batch {
  Tensor tokens, targets;  // [B, T] int64
  Tensor weights;          // [B, T] float; 0: not counted
  // 0-dim int64: the number of the first sample in the run, which keys dropout; undefined: 0.
  Tensor first_sample = {};
  // [B, T] int64: the number of each token's document in the sample, outside of which it sees
  // nothing; undefined: it sees all tokens before it.
  Tensor documents = {};
  Tensor positions = {};  // [B, T] int64; undefined: 0 .. T - 1
  // [B] double: the row_losses() of a reference, where the loss is preference_loss(); undefined
  // where tokens are learnt, or scores.
  Tensor reference = {};
  Tensor rewards = {};  // [B] double, as of AnswerRows
};

// What the last stage finds beside the loss.
struct LossDetails {
  Tensor rows;      // [B] double: row_losses()
  Tensor measures;  // as of PreferenceLoss; undefined where tokens are learnt
};

struct ModelOptions {
  enum Start { kInitialValues, kZeros } start = kInitialValues;  // kZeros: a checkpoint follows
  Dtypes dtypes;
  at::Device device = at::kCPU;
  Keeping keeping = Keeping::kAll;
  int64_t recompute_layers = 0;  // 0: keep all activations
  int64_t seed = 1234;           // of initial values and dropout
  std::string partition;         // pipe_partition_method
  // Between layers that tp splits, each of its ranks has a part of the tokens: SequenceParallel.
  bool splits_tokens = false;
  Chunking chunking = Chunking::kElements;
  // Beside which gradients are summed and parameters gathered; null: one of its own.
  std::shared_ptr<SideStream> side = nullptr;
  // The same for gradients that are summed over tp.
  std::shared_ptr<SideStream> tp_side = nullptr;
  std::optional<PreferenceConfig> preference = {};  // of batches with a reference
  // Records steps of generation; where it gives null they are not recorded.
  std::function<std::unique_ptr<GraphRecorder>(at::Device)> recorder = graph_recorder;
  WeightPacking packing = WeightPacking::kNever;  // of steps of generation on a CPU
};

struct CacheStep;
struct DecodeReplay;
struct DecodeSource;

// The layers [first, last) of each of `stages` pipeline stages.
std::vector<std::pair<int64_t, int64_t>> partition_layers(const ModelConfig& config, int stages,
                                                          const std::string& method);

class GptNeoX {
 public:
  // Collective over the mesh, which must outlive the model. Parameters hold what
  // options.start says.
  GptNeoX(const ModelConfig& config, Mesh& mesh, const ModelOptions& options);

  // One micro-batch through this stage. x: the hidden state, of hidden_shape(), that the stage
  // before sent; undefined on the first stage. Returns the hidden state, or on the last the
  // weighted SUM of token losses, or of the answers' losses (0-dim double), whose gradients are
  // multiplied by `seed` (0-dim double): call backward with 1. details: not null where those are
  // wanted. Collective over tp.
  Tensor forward(const Tensor& x, const Batch& batch, const Tensor& seed,
                 LossDetails* details = nullptr);

  // The same for tokens [B, t] that follow those in the rows of the cache, without gradients:
  // hidden states [B, t, hidden], or on the last stage the logits [B, V of all ranks] of the last
  // token. Collective over tp. Advances the cache. after_layer: of more than one token.
  Tensor generate_step(const Tensor& x, const Tensor& tokens, KvCache& cache,
                       const AfterLayer& after_layer = {});
  // Of prompts in empty rows of the cache, one behind the other in tokens [n]: the logits [B, V]
  // behind each. On one stage; shorter ones are computed as long as the longest.
  Tensor read_prompts(const Tensor& tokens, std::span<const int64_t> lengths, KvCache& cache);
  // The same as generate_step() on one stage for the cache's replay->tokens, which the likeliest
  // next ones replace: the host waits for nothing.
  void greedy_step(KvCache& cache);
  // Of whole texts [B, T], without gradients, on one rank: [B, T, hidden] behind the last norm, and
  // float logits [N, V] of rows [N, hidden] of them.
  Tensor hidden_states(const Tensor& tokens, const AfterLayer& after_layer = {});
  Tensor logits(const Tensor& hidden) const;
  // Rows without positions yet. The model must outlive it, and its parameters keep their values.
  KvCache new_cache(int64_t batch, int64_t capacity);
  // Gathers matrices that else are gathered around their use, and keeps them, or lets them go:
  // generation, also by some of the ranks alone, uses all of them for each token, and KvCache their
  // addresses. Collective over shard.
  void keep_gathered(bool keeps);

  const ModelConfig& config() const { return config_; }
  const std::optional<PreferenceConfig>& preference() const { return options_.preference; }
  Mesh& mesh() { return mesh_; }
  // Of the mixtures of experts that training has passed since the last call: [the most rows that
  // one of a layer's experts had, of an even share, summed; how many mixtures], double.
  Tensor take_expert_load();
  // Whether ranks of tp have different tokens' hidden states.
  bool splits_tokens() const { return options_.splits_tokens && mesh_.tp().size() > 1; }
  std::vector<int64_t> hidden_shape(const Batch& batch) const;  // of forward()
  at::TensorOptions hidden_options() const;
  std::vector<ParamBuffer*> buffers();
  // By global name; a leaf, as of ParamBuffer::param(). Throws for a parameter of another stage.
  const Tensor& param(const std::string& name) const;

 private:
  struct Pass {  // what a layer must know beside its input; recomputation keeps a copy
    Tensor first_sample = {};  // as in Batch
    bool training = false;
    bool splits_tokens = false;
    KvCache* cache = nullptr;  // generation
    Tensor documents = {};     // as in Batch
    Tensor positions = {};     // as in Batch
    Tensor mask = {};          // to be added to the scores, as of score_mask(); or undefined
    Tensor bias = {};          // the same, with gradients, as of score_bias(); only with a mask
    RotaryTable rotary = {};   // of the batch's positions; undefined: 0 .. T - 1
    Tensor ends = {};          // [B] int64: whose logits are asked for; undefined: the last token's
    // A step of generation that can be recorded: lengths [B] int64 of the cache's rows, of which
    // the first `seen` keys are looked at, with mask [B K, G, seen]; or undefined.
    Tensor lengths = {};
    int64_t seen = 0;
    // As of CacheStep: layers run by row_step(), the mask only holds what depends on distances.
    Tensor arrived = {};
    AfterLayer after_layer = {};  // generation; or none
  };
  Pass pass_of(const Batch& batch) const;
  Pass cached_pass(int64_t T, KvCache& cache) const;
  Pass replayed_pass(const DecodeReplay& replay, int64_t seen, KvCache& cache) const;
  Tensor replayed_step(const Tensor& x, const Tensor& tokens, KvCache& cache);
  const Tensor& replayed_logits(const Tensor& x, KvCache& cache);
  Tensor step_output(const Tensor& x, const Tensor& tokens, const Pass& pass);
  DecodeSource decode_source(int64_t capacity);
  Tensor attend_prompt(const Tensor& q, const Tensor& k, const Tensor& v);
  void add_buffers();
  std::vector<ModelParam> vectors() const;
  void add_position_tables();
  void add_buffer(const std::string& name, const std::vector<ModelParam>& params,
                  Communicator* stages = nullptr);
  Sharing sharing(bool split, Communicator* stages) const;

  Tensor loss(const Tensor& x, const Batch& batch, const Tensor& seed, LossDetails* details);
  Tensor score_loss(const Tensor& x, const Batch& batch, const Tensor& seed, LossDetails* details);
  Tensor embed(const Tensor& tokens, const Pass& pass);
  Tensor embed_positions(const Tensor& tokens, const Pass& pass);
  Tensor layers(Tensor x, const Pass& pass);
  ResidualSum gathered_layer(const ResidualSum& input, int64_t l, int64_t to, const Pass& pass);
  ResidualSum layer(const ResidualSum& input, int64_t l, const Pass& pass);
  ParamBuffer& matrices(int64_t l);
  TensorParallel& tp(const Pass& pass) { return pass.splits_tokens ? sequence_ : tp_; }
  ResidualSum with_branch(const ResidualSum& to, const Tensor& branch, const Tensor& bias,
                          const std::string& site, const Pass& pass);
  Tensor attention(const Tensor& x, const Tensor& qkv, int64_t l, const Pass& pass);
  Heads query_key_value(const Tensor& x, const Tensor& weight, int64_t l, const Pass& pass);
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l, const Pass& pass);
  Tensor attend_in_documents(const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& documents);
  Tensor attend_by_probabilities(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                                 const Pass& pass);
  Tensor attend_whole(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                      const Pass& pass);
  bool attends_by_probabilities(const Pass& pass) const;
  bool needs_mask(const Pass& pass) const;
  bool attends_in_fp32(const Tensor& q, const Pass& pass) const;
  Tensor attend_cached(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                       const Pass& pass);
  CacheStep cache_step(int64_t l, const Pass& pass) const;
  bool takes_row_kernels(int64_t rows) const;
  Tensor row_step(const Tensor& x, const Pass& pass);
  Tensor row_layer(const Tensor& x, int64_t l, const Pass& pass);
  Tensor for_queries(const Tensor& keys) const;
  bool scores_depend_on_distance() const;
  Tensor score_mask(int64_t first, int64_t last, const Tensor& documents) const;
  Tensor score_bias(int64_t first, int64_t last) const;
  Tensor mask_at(const Tensor& distance, const Tensor& documents) const;
  Tensor bias_at(const Tensor& distance) const;
  Tensor mlp(const Tensor& x, const Tensor& inner, int64_t l, const Pass& pass);
  Tensor experts(const Tensor& x, int64_t l, const Pass& pass);
  // Of norms over hidden states where no size is given. Each of `size` values has a weight,
  // whatever the norm learns.
  NormOptions norm_options() const { return norm_options(config_.hidden); }
  NormOptions norm_options(int64_t size) const;
  NormWeight norm_weight(const std::string& name) const {
    return norm_weight(name, config_.hidden);
  }
  NormWeight norm_weight(const std::string& name, int64_t size) const;
  NormWeight final_norm() const;
  EntryNorms norms(const std::string& first, const std::string& second = "") const;
  DropoutSite dropout_site(const std::string& site, const Pass& pass) const;
  DropoutSite hidden_site(const std::string& site, const Tensor& x, const Pass& pass) const;
  std::string prefix(int64_t l) const { return "layers." + std::to_string(l) + "."; }
  Tensor bias(const std::string& name) const;
  const Tensor& head_weight() const;

  ModelConfig config_;
  Mesh& mesh_;
  ModelOptions options_;
  TensorParallel tp_;
  SequenceParallel sequence_;
  int64_t first_layer_ = 0, last_layer_ = 0;
  std::vector<std::unique_ptr<ParamBuffer>> buffers_;
  std::vector<ParamBuffer*> matrices_;  // by layer
  bool keeps_gathered_ = false;
  std::map<std::string, std::pair<ParamBuffer*, size_t>> params_;  // by name: the buffer, the place
  RotaryTable rotary_;
  Tensor sinusoids_;  // [positions, hidden]; undefined: positions are not added as sinusoids
  Tensor ones_;       // weights of norms that learn none; or undefined
  Tensor slopes_;     // [H, 1, 1] of ALiBi; undefined: none
  ScoreRule score_rule_;
  std::shared_ptr<PackedModel> packed_;  // of generation, once it began; or null
  Tensor expert_load_ = {};  // as of take_expert_load(); undefined: no mixture was passed
};

}  // namespace neox
