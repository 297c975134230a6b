// A tiny model that generates on one rank, its logits step by step and its texts.
#pragma once
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>

#include <functional>

#include "generate/generate.h"
#include "model/decode_replay.h"
#include "rerun_recorder.h"
#include "tiny_run.h"

namespace neox::testing {

using Tokens = std::vector<int32_t>;
using Texts = std::vector<Tokens>;

using Recorder = std::function<std::unique_ptr<GraphRecorder>(at::Device)>;

// On a CPU too.
inline Recorder rerun(RerunRecorder::Calls& calls) {
  return [&calls](at::Device) { return std::make_unique<RerunRecorder>(calls); };
}

enum class By { kLayers, kFused, kReplay, kRowKernels };

class Model {
 public:
  explicit Model(const ModelOption& option = {}, at::ScalarType type = at::kFloat,
                 at::Device device = at::kCPU, Recorder recorder = graph_recorder,
                 int64_t hidden = 20)
      : world_(self_communicator()),
        mesh_({}, *world_),
        model_(config(option, hidden), mesh_,
               {.dtypes = {type, type, type},
                .device = device,
                .keeping = Keeping::kNoGradients,
                .recorder = std::move(recorder),
                .packing = WeightPacking::kAlways}) {}
  static ModelConfig config(const ModelOption& option, int64_t hidden = 20) {
    TinyOptions options;
    options.model.hidden = hidden;
    options.model.intermediate = 4 * hidden;
    if (option.set) option.set(options);
    ModelConfig config = options.model;
    config.positions = 24;
    config.init_std = 1;
    return config;
  }
  GptNeoX& operator*() { return model_; }

  // The logits behind prompts of 1, 4, 9 ... tokens, then of steps of one token, [steps, B, V].
  Tensor logits(int64_t batch, By by) {
    at::NoGradGuard no_grad;
    at::manual_seed(1);
    KvCache cache = model_.new_cache(batch, 24);
    if (by != By::kFused) cache.fused = nullptr;
    if (by == By::kReplay || by == By::kRowKernels) cache.replay = replay(batch);
    if (by == By::kRowKernels) cache.replay->use_row_kernels(model_.config().heads);
    int64_t vocab = model_.config().vocab;
    std::vector<Tensor> all;
    for (int64_t b = 0; b < batch; ++b) {
      KvCache row = cache.narrow(b, 1);
      model_.generate_step({}, at::randint(vocab, {1, (b + 1) * (b + 1)}, at::kLong), row);
      cache.lengths[static_cast<size_t>(b)] = row.lengths.front();
    }
    for (int i = 0; i < 6; ++i)
      all.push_back(model_.generate_step({}, at::randint(vocab, {batch, 1}, at::kLong), cache));
    return at::stack(all).to(at::kFloat);
  }

  // Behind a prompt of many tokens, then of a step, [2, V].
  Tensor logits_of_prompt(int64_t tokens, bool fused) {
    at::NoGradGuard no_grad;
    at::manual_seed(1);
    KvCache cache = model_.new_cache(1, 24);
    if (!fused) cache.fused = nullptr;
    int64_t vocab = model_.config().vocab;
    std::vector<Tensor> all;
    for (int64_t n : {tokens, int64_t{1}})
      all.push_back(model_.generate_step({}, at::randint(vocab, {1, n}, at::kLong), cache));
    return at::stack(all).to(at::kFloat);
  }

  std::shared_ptr<DecodeReplay> replay(int64_t rows) {
    return std::make_shared<DecodeReplay>(rerun(calls)(at::kCPU), rows, at::kCPU);
  }
  RerunRecorder::Calls calls;

  Texts texts(const std::vector<TextRequest>& requests, int64_t batch_size,
              const std::vector<int32_t>& ends = {}) {
    return generate(model_, requests, {.batch_size = batch_size, .ends = ends});
  }

 private:
  std::unique_ptr<Communicator> world_;
  Mesh mesh_;
  GptNeoX model_;
};

inline double relative(const Tensor& a, const Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

// Prompts of many lengths, of which some end early.
inline std::vector<TextRequest> requests(const Sampling& sampling) {
  std::vector<TextRequest> all;
  for (int32_t i = 0; i < 9; ++i) {
    TextRequest r{.sampling = sampling};
    for (int32_t t = 0; t <= i * 5 % 7; ++t) r.prompt.push_back((3 * i + 5 * t) % 11);
    r.sampling.max_tokens = 4 + i;
    all.push_back(r);
  }
  return all;
}

}  // namespace neox::testing
