// The shapes, weights and tokens that tests/oracle/model.py and the tests compute alike, and a
// GptNeoX of one rank that is run on them. Weights and tokens are functions of (name, position).
#pragma once
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/communicator.h"
#include "comm/mesh.h"
#include "train/step.h"

namespace neox {

using Tensors = std::map<std::string, Tensor>;
using Sketch = std::vector<double>;  // a tensor's norm and sums of its elements with random signs

struct ModelCase {
  std::string name;
  ModelConfig config;
  int64_t batch = 0;
};

struct CaseActivation {
  Activation function;
  bool gated = false;
};

inline CaseActivation case_activation(const std::string& name) {
  using enum Activation;
  static const std::map<std::string, CaseActivation> kNames = {
      {"gelu", {kGeluErf}},     {"gelu_tanh", {kGeluTanh}}, {"relu", {kRelu}},
      {"silu", {kSilu}},        {"swish", {kSilu}},         {"softsign", {kSoftsign}},
      {"mish", {kMish}},        {"swiglu", {kSilu, true}},  {"geglu", {kGeluErf, true}},
      {"reglu", {kRelu, true}}, {"glu", {kSigmoid, true}},  {"bilinear", {kIdentity, true}}};
  return kNames.at(name);
}

// What a case does not say is as in GPT-NeoX (DEFAULTS of tests/oracle/families.py).
inline ModelCase model_case(const nlohmann::json& j) {
  using enum PositionEmbedding;
  static const std::map<std::string, PositionEmbedding> kPositions = {{"rotary", kRotary},
                                                                      {"learned", kLearned},
                                                                      {"sinusoidal", kSinusoidal},
                                                                      {"alibi", kAlibi},
                                                                      {"rpe", kRelative}};
  int64_t hidden = j.at("hidden"), seq = j.at("seq");
  CaseActivation activation = case_activation(j.at("activation"));
  std::string norm = j.value("norm", "layernorm");
  ModelConfig config{.layers = j.at("layers"),
                     .hidden = hidden,
                     .heads = j.at("heads"),
                     .seq = seq,
                     .positions = seq,
                     .vocab = j.at("vocab"),
                     .intermediate = j.value("intermediate", 4 * hidden),
                     .position_embedding = kPositions.at(j.value("pos_emb", "rotary")),
                     .rotary_pct = j.value("rotary_pct", 1.0),
                     .norm_eps = j.value("norm_eps", 1e-5),
                     .parallel_residual = j.value("parallel_residual", false),
                     .tied_embedding = j.value("tied_embedding", false),
                     .activation = activation.function,
                     .kv_heads = j.value("kv_heads", int64_t{0}),
                     .window = j.value("window", int64_t{0}),
                     .norm = norm.ends_with("layernorm") ? Norm::kLayerNorm : Norm::kRmsNorm,
                     .norm_weights = norm == "scalenorm"     ? NormWeights::kOne
                                     : norm.starts_with("n") ? NormWeights::kNone
                                                             : NormWeights::kEach,
                     .gated = activation.gated,
                     .attention_bias = j.value("attention_bias", true),
                     .mlp_bias = j.value("mlp_bias", true),
                     .tied_norms = j.value("tied_norms", false),
                     .qk_norm = j.value("qk_norm", false),
                     .rpe_buckets = j.value("rpe_num_buckets", int64_t{32}),
                     .rpe_max_distance = j.value("rpe_max_distance", int64_t{128})};
  if (j.contains("rope_scaling")) {
    const nlohmann::json& scaling = j.at("rope_scaling");
    RotaryScaling& r = config.rotary_scaling;
    std::string kind = scaling.value("rope_type", "llama3");
    r.kind = kind == "yarn"     ? RotaryKind::kYarn
             : kind == "linear" ? RotaryKind::kLinear
                                : RotaryKind::kLlama3;
    r.factor = scaling.at("factor");
    r.low_freq_factor = scaling.value("low_freq_factor", r.low_freq_factor);
    r.high_freq_factor = scaling.value("high_freq_factor", r.high_freq_factor);
    r.original_positions = scaling.value("original_max_position_embeddings", r.original_positions);
    if (r.kind == RotaryKind::kYarn) r.attention_factor = yarn_attention_factor(r.factor);
  }
  if (j.contains("mup")) {
    const nlohmann::json& mup = j.at("mup");
    config.mup = MupConfig{.width = mup.at("width"),
                           .score_temperature = mup.value("score_temperature", 1.0),
                           .logit_temperature = mup.value("logit_temperature", 1.0),
                           .embedding = mup.value("embedding", 1.0),
                           .positions = mup.value("positions", 1.0)};
  }
  if (j.contains("moe")) {
    const nlohmann::json& moe = j.at("moe");
    config.moe = MoeConfig{.experts = moe.at("experts"),
                           .top_k = moe.at("top_k"),
                           .interval = moe.value("interval", int64_t{1}),
                           .intermediate = config.intermediate,
                           .router = moe.at("router") == "topk" ? Router::kTopK : Router::kSinkhorn,
                           .normalized = moe.value("normalized", false)};
  }
  return {j.at("name"), config, j.at("batch")};
}

// The config of a run as tests/oracle/model.py trains it.
inline Config training(const nlohmann::json& j) {
  Config c;
  c.optimizer = {.lr = j.at("lr"),
                 .beta1 = j.at("beta1"),
                 .beta2 = j.at("beta2"),
                 .eps = j.at("eps"),
                 .weight_decay = j.at("weight_decay"),
                 .gradient_clipping = j.at("gradient_clipping")};
  c.schedule = {.decay = LrDecay::kCosine,
                .formula = LrFormula::kV2,
                .lr = j.at("lr"),
                .min_lr = j.at("min_lr"),
                .decay_iters = j.at("decay_iters"),
                .warmup_iters = j.at("warmup_iters")};
  c.train.iters = j.at("steps");
  return c;
}

inline nlohmann::json read_golden(const std::string& file) {
  return nlohmann::json::parse(read_file(fs::path(NEOX_SOURCE_DIR) / "tests" / "golden" / file));
}

// splitmix64 of (FNV-1a of the name, position).
class Hash {
 public:
  explicit Hash(const std::string& name) {
    for (char c : name) key_ = (key_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  uint64_t operator()(int64_t i) const {
    uint64_t x = key_ + (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

 private:
  uint64_t key_ = 14695981039346656037u;
};

// Exact in float.
inline Tensor made_up_weight(const ModelCase& c, const std::string& name, const Dims& shape) {
  bool norm = name.find("norm") != std::string::npos && name.ends_with(".weight");
  double scale = norm ? 0.25 : name == "embed_in.weight" ? 0.5 : 0.125;
  Tensor t = at::empty(shape, at::kDouble);
  auto* out = t.mutable_data_ptr<double>();
  Hash hash(c.name + "/" + name);
  for (int64_t i = 0; i < t.numel(); ++i) {
    double u = static_cast<double>(hash(i) >> 48) / 32768 - 1;
    out[i] = (norm ? 1 : 0) + u * scale;
  }
  return t;
}

// [B, T + 1]: inputs and, one further, targets.
inline Tensor made_up_tokens(const ModelCase& c, int64_t step) {
  Tensor t = at::empty({c.batch, c.config.seq + 1}, at::kLong);
  Hash hash(c.name + "/tokens");
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mutable_data_ptr<int64_t>()[i] =
        static_cast<int64_t>(hash(step * t.numel() + i) % static_cast<uint64_t>(c.config.vocab));
  return t;
}

inline Batch batch_of(const Tensor& tokens) {
  int64_t T = tokens.size(1) - 1;
  return {tokens.narrow(1, 0, T).contiguous(), tokens.narrow(1, 1, T).contiguous(),
          at::ones({tokens.size(0), T}, at::kFloat)};
}

// Sums with random signs: the mean square of the differences between two tensors' sums estimates
// the square of their distance.
inline Sketch sketch(const std::string& name, const Tensor& tensor) {
  constexpr size_t kSigns = 16;
  Tensor t = tensor.detach().to(at::kDouble).contiguous();
  const auto* x = t.const_data_ptr<double>();
  Hash hash(name + "/signs");
  Sketch sums(kSigns + 1, 0.0);
  for (int64_t i = 0; i < t.numel(); ++i) {
    uint64_t bits = hash(i);
    sums[0] += x[i] * x[i];
    for (size_t k = 0; k < kSigns; ++k) sums[k + 1] += (bits >> k & 1) != 0 ? x[i] : -x[i];
  }
  sums[0] = std::sqrt(sums[0]);
  return sums;
}

// ||a - b|| / ||b||: estimated from sketches; exact. Not a number is infinitely far.
inline double relative_distance(const Sketch& a, const Sketch& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (size_t k = 1; k < a.size(); ++k) sum += (a[k] - b[k]) * (a[k] - b[k]);
  double d = std::sqrt(sum / static_cast<double>(a.size() - 1)) / b[0];
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

inline double relative_distance(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  double d = (x - y).norm().item<double>() / y.norm().item<double>();
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

// The tensor of two sets that is farthest, and how far.
struct Worst {
  double distance = 0;
  std::string name;
  void add(const std::string& tensor, double d) {
    if (d >= distance) distance = d, name = tensor;
  }
};

// Softmax does not see the bias of keys where rotary embedding leaves them as they are: its
// gradient is rounding, which Adam scales up to whole steps. Sets those rows to zero, to be
// compared where rounding differs.
inline Tensors without_inert_rows(const ModelCase& c, Tensors tensors) {
  int64_t K = c.config.groups(), G = c.config.group_queries(), D = c.config.head_size();
  auto rotary = static_cast<int64_t>(static_cast<double>(D) * c.config.rotary_pct);
  for (auto& [name, t] : tensors)
    if (name.ends_with("query_key_value.bias")) {
      t = t.clone();
      t.view({K, G + 2, D}).select(1, G).narrow(1, rotary, D - rotary).zero_();
    }
  return tensors;
}

class ModelRun {
 public:
  ModelRun(const ModelCase& c, const ModelOptions& options)
      : case_(c),
        world_(self_communicator()),
        mesh_({}, *world_),
        model_(c.config, mesh_, options) {
    load([&](const std::string& name, const Dims& shape) {
      return made_up_weight(case_, name, shape);
    });
  }
  GptNeoX& model() { return model_; }

  void load(const std::function<Tensor(const std::string&, const Dims&)>& weight) {
    at::NoGradGuard no_grad;
    for (ParamBuffer* buffer : model_.buffers()) {
      for (const Placement& p : buffer->placements())
        buffer->master()
            .narrow(0, p.offset, p.box.numel())
            .copy_(weight(p.name, p.shape).flatten());
      buffer->publish();
    }
  }

  // The mean loss of the batch; gradients() are its gradients.
  double loss(const Batch& batch) {
    auto n = static_cast<double>(batch.tokens.numel());
    LossSum sum = Pipeline(model_).train(
        1, [&](int64_t) { return batch; }, at::full({}, 1 / n, at::kDouble));
    EXPECT_EQ(sum.weight.item<double>(), n);
    return sum.loss.item<double>() / n;
  }
  Tensors gradients() {
    return pieces([](ParamBuffer& buffer) { return buffer.grad(); });
  }
  // In Dtypes::state.
  Tensors parameters() {
    return pieces([](ParamBuffer& buffer) { return buffer.master(); });
  }

  // By the key/value cache: a prompt of `prompt` tokens, then `chunk` at a time. The logits of each
  // piece's last token: [B, pieces, V].
  Tensor logits(const Tensor& tokens, int64_t prompt, int64_t chunk) {
    int64_t T = tokens.size(1);
    KvCache cache = model_.new_cache(tokens.size(0), T);
    std::vector<Tensor> all;
    for (int64_t from = 0, n = prompt; from < T; from += n, n = std::min(chunk, T - from))
      all.push_back(model_.generate_step({}, tokens.narrow(1, from, n).contiguous(), cache));
    return at::stack(all, 1);
  }

  // Steps of the trainer, each of batches of one sample: accumulation is part of it.
  std::vector<StepReport> train(const Config& config,
                                const std::function<Tensor(int64_t)>& tokens) {
    Config own = config;
    if (case_.config.mup) own.optimizer.width = case_.config.mup->width;
    TrainStep step(model_, own);
    auto nominal_weight = static_cast<double>(case_.batch * case_.config.seq);
    std::vector<StepReport> reports;
    for (int64_t s = 0; s < config.train.iters; ++s) {
      auto source = [&](int64_t m) { return batch_of(tokens(s).narrow(0, m, 1)); };
      reports.push_back(step.read(step.run(case_.batch, source, nominal_weight)));
    }
    return reports;
  }

 private:
  Tensors pieces(const std::function<Tensor(ParamBuffer&)>& flat) {
    Tensors all;
    for (ParamBuffer* buffer : model_.buffers())
      for (size_t i = 0, offset = 0; i < buffer->specs().size(); ++i) {
        const ParamSpec& spec = buffer->specs()[i];
        int64_t n = num_elements(spec.shape);
        all[spec.name] =
            flat(*buffer).narrow(0, static_cast<int64_t>(offset), n).view(spec.shape).clone();
        offset += static_cast<size_t>(n);
      }
    return all;
  }

  ModelCase case_;
  std::unique_ptr<Communicator> world_;
  Mesh mesh_;
  GptNeoX model_;
};

constexpr Dtypes kAll64{at::kDouble, at::kDouble, at::kDouble};
constexpr Dtypes kAll32{at::kFloat, at::kFloat, at::kFloat};
constexpr Dtypes kHalf16{at::kBFloat16, at::kFloat, at::kFloat};

}  // namespace neox
