// A tiny GPT-NeoX trained on made-up samples at any layout, ranks as threads, in fp64: the language
// of the layout tests.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/thread.h"
#include "data/boundaries.h"
#include "optim/optimizer.h"
#include "tiny_options.h"
#include "train/batches.h"
#include "train/step.h"

namespace neox {

// What a batch says of its documents.
inline void add_boundaries(Batch& batch, int64_t end_of_document) {
  batch.documents = at::empty_like(batch.tokens);
  batch.positions = at::empty_like(batch.tokens);
  auto width = static_cast<size_t>(batch.tokens.size(1));
  for (int64_t b = 0; b < batch.tokens.size(0); ++b) {
    std::span tokens(batch.tokens[b].const_data_ptr<int64_t>(), width);
    number_documents(tokens, end_of_document,
                     {batch.documents[b].mutable_data_ptr<int64_t>(), width});
    restart_positions(tokens, end_of_document,
                      {batch.positions[b].mutable_data_ptr<int64_t>(), width});
  }
}

// The state of a run as whole tensors: "param/embed_in.weight", "adam_m/...".
using WholeState = std::map<std::string, at::Tensor>;

struct TinyResult {
  std::vector<StepReport> steps;
  WholeState state;
  // A parameter whose copies are not bitwise equal, or which is published as other values than the
  // rounded master's, if there is one.
  std::string copies_differ;
};

inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

class TinyRun {
 public:
  TinyRun(Layout layout, TinyOptions options) : layout_(layout), options_(std::move(options)) {}

  // Called by each rank. The parameters of a run that begins with one are zeros before.
  using Hook = std::function<void(TrainStep&, Control&)>;

  // Steps first..last - 1; `begin` before them, `end` after them.
  TinyResult train(int64_t first, int64_t last, const Hook& begin = {}, const Hook& end = {}) {
    TinyResult result;
    run_thread_ranks(layout_.size(), [&](Communicator& world, Control& control) {
      run_rank(world, control, {first, last, begin, end}, result);
    });
    compare_published(result);
    return result;
  }

  Batch batch(int64_t step, int64_t index) const {
    Batch b = batch_on_host(step, index);
    for (Tensor* t : {&b.tokens, &b.targets, &b.weights, &b.first_sample, &b.documents,
                      &b.positions, &b.reference, &b.rewards})
      if (t->defined()) *t = t->to(options_.device);
    return b;
  }

 private:
  struct Steps {
    int64_t first, last;
    const Hook &begin, &end;
  };

  void run_rank(Communicator& threads, Control& control, const Steps& steps, TinyResult& result) {
    auto made = options_.world ? options_.world(threads, control) : nullptr;
    Communicator& world = made ? *made : threads;
    Mesh mesh(layout_, world);
    ModelOptions model_options{
        .start = steps.begin ? ModelOptions::kZeros : ModelOptions::kInitialValues,
        .dtypes = options_.dtypes,
        .device = options_.device,
        .keeping = options_.keeping,
        .recompute_layers = options_.recompute,
        .splits_tokens = options_.splits_tokens,
        .chunking = chunking_of(options_.optimizer),
        .side = options_.side ? options_.side() : nullptr,
        .tp_side = options_.side ? options_.side() : nullptr,
        .preference = options_.preference};
    GptNeoX model(options_.model, mesh, model_options);
    Config config;
    config.precision = options_.precision;
    config.optimizer = options_.optimizer;
    config.schedule = {.decay = LrDecay::kCosine,
                       .lr = 1e-3,
                       .min_lr = 1e-4,
                       .decay_iters = 20,
                       .warmup_iters = 2};
    config.train.iters = 20;
    auto recorder = options_.recorder ? options_.recorder() : nullptr;
    TrainStep step(model, config, recorder.get());
    if (steps.begin) steps.begin(step, control);
    int64_t ranks = mesh.data().size(), at_once = ranks * options_.micro;
    for (int64_t s = steps.first; s < steps.last; ++s) {
      auto batches = [&](int64_t m) { return batch(s, m * ranks + mesh.data().rank()); };
      int64_t each = options_.preference ? 1 : options_.cut ? tokens_of(s) : options_.model.seq;
      int64_t samples = options_.batch_of(s), microbatches = (samples + at_once - 1) / at_once;
      auto nominal_weight = static_cast<double>(samples * each);
      StepReport report = step.read(step.run(microbatches, batches, nominal_weight));
      if (world.rank() == 0) result.steps.push_back(report);
      if (options_.after_step) options_.after_step(step, world);
    }
    collect(step, result);
    for (ParamBuffer* buffer : model.buffers()) buffer->param(0);  // is here, outside the lock
    collect_published(model, result);
    if (steps.end) steps.end(step, control);
  }

  int64_t tokens_of(int64_t step) const {
    return options_.seq_of_step ? options_.seq_of_step(step) : options_.model.seq;
  }

  Batch batch_on_host(int64_t step, int64_t index) const {
    int64_t each = options_.rows_of_sample(), rows = options_.micro * each, T = options_.model.seq,
            first = index * rows, all = options_.batch * each,
            counted_rows = options_.batch_of(step) * each;
    Batch b{at::empty({rows, T}, at::kLong), at::empty({rows, T}, at::kLong),
            at::full({rows, T}, 0.0, at::kFloat), at::scalar_tensor(step * all + first, at::kLong)};
    int64_t first_sample = step * all + first, counted_tokens = tokens_of(step);
    if (options_.preference && options_.preference->has_reference())
      b.reference = at::arange(first, first + rows, at::kDouble).sin() * 3 + 10;
    if (options_.preference && each == 1)
      b.rewards = at::arange(first, first + rows, at::kDouble).remainder(3) * 2 - 1;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t t = 0; t <= T; ++t) {
        auto id = static_cast<uint64_t>((first_sample + i) * (T + 1) + t);
        auto token = static_cast<int64_t>(mix(id) % static_cast<uint64_t>(options_.model.vocab));
        if (options_.end_of_document >= 0 && mix(id + 2000000) % 3 == 0)
          token = options_.end_of_document;
        if (t < T) b.tokens[i][t] = token;
        if (t > 0) b.targets[i][t - 1] = token;
        bool counted = first + i < counted_rows && (!options_.masked || mix(id + 1000000) % 4 != 0);
        if (t < T) b.weights[i][t] = counted && t < counted_tokens ? 1.0 : 0.0;
      }
    }
    if (options_.end_of_document >= 0) add_boundaries(b, options_.end_of_document);
    if (options_.cut) b = beginning(b, counted_tokens);
    return b;
  }

  static Tensor part(const Tensor& whole_tensor, const Placement& p) {
    Tensor t = whole_tensor;
    for (size_t d = 0; d < p.shape.size(); ++d)
      t = t.narrow(static_cast<int64_t>(d), p.box.start[d], p.box.extent[d]);
    return t;
  }

  // Puts what this rank owns into the whole tensors; what another rank put there before must be the
  // same bits.
  void collect(TrainStep& step, TinyResult& result) {
    at::NoGradGuard no_grad;
    std::lock_guard lock(mutex_);
    for (const StateChunk& chunk : step.owned()) {
      for (const Placement& p : chunk.placements) {
        Tensor& t = result.state[chunk.state + "/" + p.name];
        if (!t.defined())
          t = at::full(p.shape, std::numeric_limits<double>::quiet_NaN(), chunk.data.scalar_type());
        Tensor to = part(t, p),
               mine = chunk.data.narrow(0, p.offset, p.box.numel()).view(p.box.extent).cpu();
        Tensor known = to.isnan().logical_not();
        if (!to.masked_select(known).equal(mine.masked_select(known)))
          result.copies_differ = p.name;
        to.copy_(mine);
      }
    }
  }

  void collect_published(GptNeoX& model, TinyResult& result) {
    std::lock_guard lock(mutex_);
    for (ParamBuffer* buffer : model.buffers()) {
      for (size_t i = 0; i < buffer->specs().size(); ++i) {
        const ParamSpec& spec = buffer->specs()[i];
        int tp = spec.tp_dim ? model.mesh().tp().rank() : 0;
        Published& there = published_[spec.name + "/" + std::to_string(tp)];
        Tensor mine = buffer->param(i).detach().cpu().clone();
        if (there.values.defined() && !there.values.equal(mine)) result.copies_differ = spec.name;
        there = {{spec.name, spec.shape, tp_box(spec, tp, model.mesh().tp().size())}, mine};
      }
    }
  }

  void compare_published(TinyResult& result) const {
    for (const auto& [name, there] : published_) {
      Tensor master = part(result.state.at("param/" + there.place.name), there.place);
      if (!there.values.equal(master.to(there.values.scalar_type())))
        result.copies_differ = name + " as published";
    }
  }

  struct Published {
    Placement place;
    Tensor values;
  };

  Layout layout_;
  TinyOptions options_;
  std::mutex mutex_;
  std::map<std::string, Published> published_;  // by name and rank of tp
};

// The greatest |a - b| over all tensors of two states; infinite where they do not have the same
// ones, or where one is not complete.
inline double distance(const WholeState& a, const WholeState& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (const auto& [name, t] : a) {
    auto other = b.find(name);
    if (other == b.end() || t.isnan().any().item<bool>())
      return std::numeric_limits<double>::infinity();
    worst = std::max(worst, (t - other->second).abs().max().item<double>());
  }
  return worst;
}

inline double distance(const std::vector<StepReport>& a, const std::vector<StepReport>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(
        {worst, std::abs(a[i].loss - b[i].loss), std::abs(a[i].grad_norm - b[i].grad_norm)});
  return worst;
}

}  // namespace neox
