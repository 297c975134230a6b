// What ranks send each other, how often, and beside what.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <numeric>
#include <utility>

#include "base/error.h"
#include "jobs/layouts.h"
#include "model/head.h"
#include "model/sequence_parallel.h"
#include "ops/bf16_kernels.h"
#include "ops/product.h"
#include "tiny_run.h"

namespace neox {
namespace {

using Elements = std::map<std::string, std::vector<int64_t>>;  // of each call, by group and name

// Notes what a rank asks of it and of the groups that are split off, with types that are not
// double.
class NotingCommunicator : public Communicator {
 public:
  NotingCommunicator(std::unique_ptr<Communicator> own, Communicator& group, std::string name,
                     Elements& elements)
      : own_(std::move(own)), group_(group), name_(std::move(name)), elements_(elements) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void all_reduce(Tensor& t, Op op) override {
    note("all_reduce", t);
    group_.all_reduce(t, op);
  }
  void reduce_scatter(const Tensor& full, Tensor& mine) override {
    note("reduce_scatter", full);
    group_.reduce_scatter(full, mine);
  }
  void all_gather(const Tensor& mine, Tensor& full) override {
    note("all_gather", full);
    group_.all_gather(mine, full);
  }
  void broadcast(Tensor& t, int root) override { group_.broadcast(t, root); }
  void exchange(std::span<Transfer> transfers) override {
    for (const Transfer& t : transfers)
      if (t.kind == Transfer::kSend) note("send", t.tensor);
    group_.exchange(transfers);
  }
  std::unique_ptr<Communicator> split(int color, const std::string& name) override {
    auto part = group_.split(color, name);
    Communicator& group = *part;
    return std::make_unique<NotingCommunicator>(std::move(part), group, name, elements_);
  }
  void abort(const std::string& reason) override { group_.abort(reason); }

 private:
  void note(const char* operation, const Tensor& t) {
    std::string type = t.scalar_type() == at::kDouble ? "" : concat(" ", t.scalar_type());
    if (size() > 1) elements_[name_ + " " + operation + type].push_back(t.numel());
  }
  std::unique_ptr<Communicator> own_;
  Communicator& group_;
  std::string name_;
  Elements& elements_;
};

// Of one rank in the second step of a run.
Elements sent(Layout layout, const TinyOptions& given, size_t rank = 0, int64_t micro_batches = 1) {
  at::set_num_threads(1);
  TinyOptions options = given;
  std::vector<Elements> of_rank(static_cast<size_t>(layout.size()));
  options.world = [&](Communicator& threads, Control&) {
    return std::make_unique<NotingCommunicator>(nullptr, threads, "world",
                                                of_rank[static_cast<size_t>(threads.rank())]);
  };
  options.batch = layout.replicate * layout.shard * micro_batches;
  TinyRun run(layout, options);
  run.train(0, 1);
  Elements one = std::move(of_rank[rank]);
  of_rank.assign(of_rank.size(), {});
  run.train(0, 2);
  Elements two = std::move(of_rank[rank]);
  for (auto& [name, calls] : two)
    calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(one[name].size()));
  return two;
}

int64_t count(const std::vector<int64_t>& calls, int64_t elements) {
  return std::ranges::count(calls, elements);
}

constexpr int64_t kHiddenState = 7 * 20;  // T * hidden of a TinyRun

// Two sums of hidden states for each layer where attention and MLP have one input, four where they
// follow each other; the embedding's and that of the gradient behind the last norm.
TEST(TensorParallel, SumsOncePerPassWhatTwoNormsLeadTo) {
  TinyOptions parallel, sequential;
  parallel.model.hidden_dropout = sequential.model.hidden_dropout = 0;
  sequential.model.parallel_residual = false;
  EXPECT_EQ(count(sent({.tp = 2}, parallel)["tp all_reduce"], kHiddenState), 2 * 5 + 2);
  EXPECT_EQ(count(sent({.tp = 2}, sequential)["tp all_reduce"], kHiddenState), 4 * 5 + 2);
  TinyOptions tied = parallel;
  tied.model.tied_norms = true;
  EXPECT_EQ(count(sent({.tp = 2}, tied)["tp all_reduce"], kHiddenState), 2 * 5 + 2);
}

TEST(TensorParallel, SumsVectorsOnceAStep) {
  TinyOptions options;
  Elements all = sent({.tp = 2}, options);
  int64_t vectors = 5 * (4 + 2) * 20 + 2 * 20;  // two norms and two biases a layer, the last norm
  EXPECT_EQ(count(all["tp all_reduce"], vectors), 1);
}

TEST(TensorParallel, SharesOutWhatStagesSend) {
  TinyOptions options;
  Elements all = sent({.pp = 2, .tp = 2}, options);
  EXPECT_EQ(all["pp send"], std::vector<int64_t>{kHiddenState / 2});
  EXPECT_EQ(count(all["tp all_gather"], kHiddenState), 1);
}

// Where a layer's two norms have one input: that is gathered in each direction, and in backward
// once more for the norms, beside the gradient of what the layer made. Embedding and head once.
TEST(SequenceParallel, GathersWhatTwoNormsReadOnce) {
  TinyOptions parallel;
  parallel.model.seq = 8;
  parallel.model.hidden_dropout = 0;
  parallel.splits_tokens = true;
  TinyOptions sequential = parallel, recomputed = parallel;
  sequential.model.parallel_residual = false;
  recomputed.recompute = 1;
  constexpr int64_t kState = 8 * 20;
  struct {
    TinyOptions options;
    int64_t gathers, scatters;
  } cases[] = {{parallel, 3 * 5 + 2, 2 * 5 + 2},
               {sequential, 6 * 5 + 2, 4 * 5 + 2},
               {recomputed, 3 * 5 + 2, 3 * 5 + 2}};
  for (const auto& [options, gathers, scatters] : cases) {
    Elements all = sent({.tp = 2}, options);
    EXPECT_EQ(count(all["tp all_gather"], kState), gathers);
    EXPECT_EQ(count(all["tp reduce_scatter"], kState), scatters);
    EXPECT_EQ(count(all["tp all_reduce"], kState), 0);
  }
  Elements staged = sent({.pp = 2, .tp = 2}, parallel);
  EXPECT_EQ(staged["pp send"], std::vector<int64_t>{kState / 2});
  EXPECT_EQ(count(staged["tp all_gather"], kState), 3 * 3 + 1);  // three layers, the embedding
}

// One of two ranks, the other of which has kernels that do not compute logits again.
class BesideOtherKernels : public NotingCommunicator {
 public:
  using NotingCommunicator::NotingCommunicator;
  int size() const override { return 2; }
  void all_reduce(Tensor& t, Op op) override {
    NotingCommunicator::all_reduce(t, op);
    if (t.numel() == 1) t.fill_(1);
  }
};

// Of a bf16 head over 2500 tokens.
Elements sent_beside_other_kernels(Bf16Kernels kernels, bool again) {
  kernels.outruns_memory = again;
  const Bf16Kernels* usual = std::exchange(bf16_kernels(), &kernels);
  Elements elements;
  auto self = self_communicator();
  BesideOtherKernels tp(nullptr, *self, "tp", elements);
  Tensor x = at::randn({2500, 20}).to(at::kBFloat16), weight = at::randn({515, 20}).to(x);
  token_losses(x, weight, at::zeros({2500}, at::kLong), tp);
  bf16_kernels() = usual;
  return elements;
}

TEST(TensorParallel, SumsTheSameRowsOfLossesWhereProcessorsDiffer) {
  for (const Bf16Kernels* kind : all_bf16_kernels())
    EXPECT_EQ(sent_beside_other_kernels(*kind, true), sent_beside_other_kernels(*kind, false));
}

// What neox-submit layouts reckons with is what is sent: calls of whole hidden states, each rank's
// share of them in a ring.
TEST(LayoutCost, IsWhatTensorAndPipelineRanksSend) {
  for (bool splits : {false, true})
    for (bool parallel : {false, true})
      for (int64_t recompute : {0, 1})
        for (int pp : {1, 2, 3}) {
          TinyOptions o;
          o.model.seq = 8;
          o.model.layers = 6;
          o.model.hidden_dropout = 0;
          o.model.parallel_residual = parallel;
          o.splits_tokens = splits;
          o.recompute = recompute;
          Elements all = sent({.pp = pp, .tp = 2}, o, pp == 3 ? 2 : 0);  // the middle
          constexpr int64_t kState = 8 * 20;
          double link = static_cast<double>(2 * count(all["tp all_reduce"], kState) +
                                            count(all["tp all_gather"], kState) +
                                            count(all["tp reduce_scatter"], kState)) /
                        2 * kState * 8,
                 stages = static_cast<double>(count(all["pp send"], kState / 2)) * kState / 2 * 8;
          Config config;
          config.model = o.model;
          config.layout = {.pipe = pp, .tensor = 2, .splits_tokens = splits};
          config.batch = {.global = 1, .micro = 1, .accumulation = 1};
          config.precision.type = Precision::kFp64;
          config.train.recompute = recompute > 0;
          // As nodes of two GPUs, so that stages are on different ones.
          LayoutCost cost = layout_cost(
              config, {.nodes = pp, .per_node = 2, .room = 1, .rates = {1, 1, 1}}, o.model.vocab);
          std::string what = concat("splits ", splits, " parallel ", parallel, " recompute ",
                                    recompute, " stages ", pp);
          EXPECT_EQ(cost.link_bytes, link) << what;
          EXPECT_EQ(cost.network_bytes, stages) << what;
        }
}

TEST(LayoutCost, IsNearlyWhatDataRanksSend) {
  auto sum = [](const std::vector<int64_t>& calls) {
    return std::accumulate(calls.begin(), calls.end(), int64_t{0});
  };
  for (int64_t stage : {0, 1, 2, 3}) {
    TinyOptions o;
    o.model.layers = 12;
    o.keeping = stage == 3 ? Keeping::kChunks : stage == 2 ? Keeping::kParameters : Keeping::kAll;
    Elements all = sent(stage == 0 ? Layout{.replicate = 2} : Layout{.shard = 2}, o, 0, 3);
    auto bytes =
        static_cast<double>(2 * sum(all["replicate all_reduce"]) +
                            sum(all["shard reduce_scatter"]) + sum(all["shard all_gather"])) /
        2 * 8;
    Config config;
    config.model = o.model;
    config.layout.zero_stage = stage;
    config.batch = {.global = 6, .micro = 1, .accumulation = 3};
    config.precision.type = Precision::kFp64;
    LayoutCost cost = layout_cost(
        config, {.nodes = 1, .per_node = 2, .room = 1, .rates = {1, 1, 1}}, o.model.vocab);
    // Vectors of layers, which ZeRO 3 does not let go, are much of a model as tiny as this.
    EXPECT_NEAR(cost.link_bytes / bytes, 1, stage == 3 ? 0.07 : 0.01) << "stage " << stage;
  }
}

TEST(DataParallel, CostsWhatTheTypeOfGradientsTakes) {
  TinyOptions o;
  Config config;
  config.model = o.model;
  config.batch = {.global = 6, .micro = 1, .accumulation = 3};
  auto bytes = [&](const PrecisionConfig& precision) {
    config.precision = precision;
    return layout_cost(config, {.nodes = 1, .per_node = 2, .room = 1, .rates = {1, 1, 1}},
                       o.model.vocab)
        .link_bytes;
  };
  const Precision bf16 = Precision::kBf16, fp32 = Precision::kFp32;
  double wide = bytes({.type = bf16});
  EXPECT_EQ(bytes({.type = bf16, .gradients = bf16}), wide / 2);
  EXPECT_EQ(bytes({.type = bf16, .gradient_sums = bf16}), wide / 2);
  EXPECT_EQ(bytes({.type = bf16, .gradients = bf16, .gradient_sums = fp32}), wide);
  EXPECT_EQ(bytes({.type = fp32}), wide);
}

TEST(DataParallel, SumsABucketALayer) {
  TinyOptions options;
  EXPECT_EQ(sent({.shard = 2}, options)["shard reduce_scatter"].size(), 1u + 5 + 2 + 1);
}

TEST(DataParallel, SumsGradientsInTheTypeThatIsAsked) {
  TinyOptions options;
  TinyResult exact = TinyRun({}, options).train(0, 4);
  options.dtypes.sent = at::kBFloat16;
  for (Keeping keeping : {Keeping::kAll, Keeping::kParameters}) {
    options.keeping = keeping;
    Elements all = sent({.replicate = 2, .shard = 2}, options);
    EXPECT_EQ(all["shard reduce_scatter BFloat16"].size(), 9u);
    EXPECT_EQ(all["replicate all_reduce BFloat16"].size(), 9u);
    for (Layout layout : {Layout{.shard = 2}, {.replicate = 2}, {.replicate = 2, .shard = 2}}) {
      TinyResult rounded = TinyRun(layout, options).train(0, 4);
      EXPECT_LT(distance(rounded.steps, exact.steps), 1e-2) << to_string(layout);
      EXPECT_GT(distance(rounded.steps, exact.steps), 1e-9) << to_string(layout);
      EXPECT_EQ(rounded.copies_differ, "") << to_string(layout);
    }
  }
}

TEST(DataParallel, AccumulatesGradientsInTheTypeThatIsAsked) {
  TinyOptions options;
  TinyResult exact = TinyRun({}, options).train(0, 4);
  options.dtypes.grad = at::kBFloat16;
  for (Keeping keeping : {Keeping::kAll, Keeping::kParameters, Keeping::kChunks}) {
    options.keeping = keeping;
    EXPECT_EQ(sent({.shard = 2}, options)["shard reduce_scatter BFloat16"].size(), 9u);
    for (Layout layout : {Layout{}, {.pp = 2}, {.tp = 2}, {.replicate = 2, .shard = 2}}) {
      TinyResult rounded = TinyRun(layout, options).train(0, 4, {}, [](TrainStep& step, Control&) {
        for (const StateChunk& chunk : step.gradients())
          EXPECT_EQ(chunk.data.scalar_type(), at::kBFloat16);
      });
      EXPECT_LT(distance(rounded.steps, exact.steps), 1e-2) << to_string(layout);
      EXPECT_GT(distance(rounded.steps, exact.steps), 1e-9) << to_string(layout);
      EXPECT_EQ(rounded.copies_differ, "") << to_string(layout);
    }
  }
}

// Notes when sums begin, and when they are waited for.
class NotingStream : public SideStream {
 public:
  explicit NotingStream(std::vector<std::string>& notes) : SideStream(at::kCPU), notes_(notes) {}
  Work run(const Work& work) override {
    notes_.push_back("sum begins");
    return [this, work] {
      work();
      notes_.push_back("sum joined");
    };
  }

 private:
  std::vector<std::string>& notes_;
};

class NotingHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit NotingHook(std::vector<std::string>& notes) : notes_(notes) {}
  void operator()(const torch::autograd::Variable&) override { notes_.push_back("weight"); }

 private:
  std::vector<std::string>& notes_;
};

// Two products of two norms of one input, x [1, 4, 4], with other weights on each rank.
struct TwoProducts {
  Tensor x, scale, weights[2];
  Entered entered;

  TwoProducts(int rank, std::vector<std::string>& notes)
      : x(leaf(at::arange(16, at::kDouble).sin().view({1, 4, 4}))),
        scale(leaf(at::arange(4, at::kDouble).cos())),
        weights{leaf(at::arange(16, at::kDouble).add(rank).cos().view({4, 4})),
                leaf(at::arange(16, at::kDouble).sub(rank).sin().view({4, 4}))} {
    for (Tensor& w : weights)
      torch::autograd::impl::set_post_acc_grad_hooks(w, std::make_unique<NotingHook>(notes));
  }
  static Tensor leaf(const Tensor& x) { return x.set_requires_grad(true); }
  // Of the tokens that `input` has.
  Tensor loss(TensorParallel& tp, const Tensor& input) {
    Tensor first = weights[0], second = weights[1];
    entered = tp.enter({input}, {&first, &second}, {{scale}, {scale}});
    Tensor y = product(entered.first, first) + product(entered.second, second).square();
    Tensor left = tp.leave(y, entered);
    return (entered.sum.exp() + left.sin()).sum();
  }
};

const std::vector<std::string> kWeightsBetween = {"sum begins", "weight", "weight", "sum joined"};

TEST(TensorParallel, ComputesGradientsOfWeightsBesideTheSum) {
  run_thread_ranks(2, [](Communicator& world, Control&) {
    std::vector<std::string> notes;
    TensorParallel tp(world, std::make_shared<NotingStream>(notes));
    TwoProducts run(world.rank(), notes);
    run.loss(tp, run.x).backward();
    EXPECT_EQ(notes, kWeightsBetween);
  });
}

TEST(SequenceParallel, HasTheGradientsOfTensorParallelism) {
  run_thread_ranks(2, [](Communicator& world, Control&) {
    std::vector<std::string> notes, none;
    TensorParallel tp(world, std::make_shared<SideStream>(at::kCPU));
    TwoProducts want(world.rank(), none);
    want.loss(tp, want.x).backward();
    for (bool keeps_norms : {false, true}) {
      notes.clear();
      SequenceParallel sequence(world, std::make_shared<NotingStream>(notes), keeps_norms);
      TwoProducts got(world.rank(), notes);
      auto mine = [&](const Tensor& x) { return x.narrow(1, 2 * world.rank(), 2); };
      Tensor loss = got.loss(sequence, mine(got.x));
      for (const Tensor& norm : {got.entered.first, got.entered.second})
        EXPECT_EQ(norm.storage().nbytes(), keeps_norms ? 16 * sizeof(double) : 0);
      EXPECT_TRUE(got.entered.sum.equal(mine(want.entered.sum)));
      loss.backward();
      EXPECT_LT((mine(got.x.grad()) - mine(want.x.grad())).abs().max().item<double>(), 1e-14);
      for (int i = 0; i < 2; ++i) EXPECT_TRUE(got.weights[i].grad().equal(want.weights[i].grad()));
      EXPECT_TRUE(got.entered.first.equal(want.entered.first));
      // Between them, where norms are made again, the input is gathered: begun before the norms.
      auto expected = kWeightsBetween;
      if (!keeps_norms) expected.insert(expected.begin(), {"sum begins", "sum joined"});
      EXPECT_EQ(notes, expected);
    }
  });
}

}  // namespace
}  // namespace neox
