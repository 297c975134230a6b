// Recorded steps: on a CPU by a recorder that runs again what it was given, on a GPU by CUDA
// graphs.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/side_stream.h"
#include "model/gpus.h"
#include "model/replay.h"
#include "recorded_waits.h"
#include "rerun_recorder.h"
#include "tiny_run.h"

namespace neox {
namespace {

using Calls = RerunRecorder::Calls;
using Tensors = std::vector<Tensor>;

Tensor number(double value) { return at::full({}, value, at::kDouble); }

TEST(Replay, RunsAsItIsThenRecordsOnceThenReplays) {
  Calls calls;
  RerunRecorder recorder(calls);
  Replay replay(&recorder, "a sum");
  for (int pass = 1; pass <= 5; ++pass) {
    replay.begin({number(pass)});
    replay.run([] {});
    replay.run([] {});
    bool recorded = pass > Replay::kWarmUps;
    EXPECT_EQ(replay.recorded(), recorded);
    EXPECT_EQ(calls.recorded, recorded ? 2 : 0) << pass;  // two units
    EXPECT_EQ(calls.replayed, recorded ? 2 * (pass - Replay::kWarmUps) : 0) << pass;
  }
}

TEST(Replay, CountsWhatIsDoneAgainAsOnePass) {
  Calls calls;
  RerunRecorder recorder(calls);
  Replay replay(&recorder, "micro-batches");
  Tensor sum = number(0);
  for (int pass = 1; pass <= 4; ++pass)
    for (int m = 0; m < 3; ++m) {
      Tensors in = replay.begin({number(1)}, m == 0 ? Replay::Pass::kNext : Replay::Pass::kAgain);
      EXPECT_EQ(replay.recorded(), pass > Replay::kWarmUps) << pass << " " << m;
      replay.run([&sum, x = in[0]] { sum += x; });
    }
  EXPECT_EQ(sum.item<double>(), 12);
  EXPECT_EQ(calls.recorded, 1);
  EXPECT_EQ(calls.replayed, 2 * 3);
}

TEST(Replay, CopiesInputsToWhereTheRecordedWorkReadsThem) {
  Calls calls;
  RerunRecorder recorder(calls);
  Replay replay(&recorder, "a sum");
  Tensor sum = number(0);
  for (int pass = 1; pass <= 6; ++pass) {
    Tensors in = replay.begin({number(pass), {}});
    EXPECT_FALSE(in[1].defined());
    replay.run([&sum, x = in[0]] { sum += x; });
  }
  EXPECT_EQ(sum.item<double>(), 21);
  EXPECT_EQ(calls.recorded, 1);
}

TEST(Replay, BeginsAgainWithOtherShapes) {
  Calls calls;
  RerunRecorder recorder(calls);
  Replay replay(&recorder, "a sum");
  Tensor sum = number(0);
  auto pass = [&](const Tensor& x, const Tensor& y) {
    Tensors in = replay.begin({x, y});
    replay.run([&sum, in] { sum += in[1].defined() ? (in[0] + in[1]).sum() : in[0].sum(); });
  };
  auto ones = [](int64_t n) { return at::ones({n}, at::kDouble); };
  for (int i = 0; i < 4; ++i) pass(ones(3), {});
  for (int i = 0; i < 4; ++i) pass(ones(5), {});
  for (int i = 0; i < 4; ++i) pass(ones(5), ones(5));
  for (int i = 0; i < 4; ++i) pass(ones(5).to(at::kFloat), ones(5));
  EXPECT_EQ(sum.item<double>(), 4 * (3 + 5 + 10 + 10));
  EXPECT_EQ(calls.recorded, 4);
  EXPECT_EQ(calls.replayed, 8);
}

TEST(Replay, GoesOnAsItIsWhereItCannotBeRecorded) {
  RefusingRecorder recorder(0);
  Replay replay(&recorder, "a sum");
  Tensor sum = number(0);
  for (int pass = 1; pass <= 4; ++pass) {
    Tensors in = replay.begin({number(pass)});
    replay.run([&sum, x = in[0]] { sum += x; });
    EXPECT_FALSE(replay.recorded());
  }
  EXPECT_EQ(sum.item<double>(), 10);
}

void expect_end(RefusingRecorder recorder, int good_units) {
  Replay replay(&recorder, "the training step");
  for (int pass = 1; pass <= Replay::kWarmUps; ++pass)
    replay.begin({}), replay.run([] {}), replay.run([] {});
  replay.begin({});
  for (int unit = 0; unit < good_units; ++unit) replay.run([] {});
  try {
    replay.run([] {});
    FAIL();
  } catch (const Error& e) {
    std::string text = e.what();
    EXPECT_NE(text.find("the training step"), std::string::npos) << text;
    EXPECT_NE(text.find("enable_cuda_graph: false"), std::string::npos) << text;
    EXPECT_EQ(text.find("by a test"), std::string::npos) << text;  // one line
  }
}

TEST(Replay, EndsWhereALaterUnitCannotBeRecorded) { expect_end(RefusingRecorder(1), 1); }

TEST(Replay, EndsWhereARecordingThatWasAskedForFails) {
  RefusingRecorder recorder(0);
  recorder.insists = true;
  expect_end(recorder, 0);
}

constexpr int64_t kSteps = 6;

TinyResult run(const Layout& layout, TinyOptions options, Calls* calls) {
  at::set_num_threads(1);
  if (calls) options.recorder = [calls] { return std::make_unique<RerunRecorder>(*calls); };
  return TinyRun(layout, options).train(0, kSteps);
}

void expect_equal(const Layout& layout, const TinyOptions& options) {
  Calls calls;
  TinyResult plain = run(layout, options, nullptr), recorded = run(layout, options, &calls);
  EXPECT_EQ(distance(recorded.steps, plain.steps), 0) << to_string(layout);
  EXPECT_EQ(distance(recorded.state, plain.state), 0) << to_string(layout);
  EXPECT_GT(calls.replayed, 0);
}

class RecordedLayouts : public testing::TestWithParam<Layout> {};

TEST_P(RecordedLayouts, TakeTheSameSteps) {
  TinyOptions options;
  expect_equal(GetParam(), options);
  options.keeping = Keeping::kParameters;
  options.recompute = 2;
  options.batch = 13;
  expect_equal(GetParam(), options);
  options.recompute = 0;
  options.model.seq = 8;
  options.splits_tokens = true;
  expect_equal(GetParam(), options);
}

INSTANTIATE_TEST_SUITE_P(All, RecordedLayouts,
                         testing::Values(Layout{}, Layout{.tp = 2}, Layout{.shard = 3},
                                         Layout{.replicate = 2, .shard = 2}, Layout{.pp = 2},
                                         Layout{.pp = 4}, Layout{.pp = 2, .shard = 2, .tp = 2}));

TEST_P(RecordedLayouts, TakeTheSameStepsWithABatchThatGrows) {
  TinyOptions options;
  options.batch_of_step = [](int64_t step) { return step < 4 ? 1 : 2 * step - 5; };
  expect_equal(GetParam(), options);
}

class RecordedModels : public testing::TestWithParam<ModelOption> {};

TEST_P(RecordedModels, TakeTheSameSteps) {
  TinyOptions options;
  GetParam().set(options);
  expect_equal({}, options);
  expect_equal({.pp = 2}, options);
}

INSTANTIATE_TEST_SUITE_P(All, RecordedModels, testing::ValuesIn(recorded_options()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RecordedSteps, AreThreeGraphsAndOneForEachKindOfMicroBatch) {
  Calls calls;
  TinyOptions options;  // five micro-batches, of which the last one is of another kind
  run({}, options, &calls);
  EXPECT_EQ(calls.recorded, 5);
  // All in the third step: what ran as it is behind a recording would need memory beside it.
  EXPECT_EQ(calls.replayed, (3 + 5) * (kSteps - Replay::kWarmUps));
}

TEST(RecordedSteps, AreRightAfterStepsThatOverflow) {
  TinyOptions options;
  options.precision = {.type = Precision::kFp16, .initial_loss_scale = 0x1p513, .hysteresis = 1};
  Calls calls;
  TinyResult plain = run({}, options, nullptr), recorded = run({}, options, &calls);
  EXPECT_FALSE(plain.steps[0].finite);
  EXPECT_FALSE(plain.steps[3].finite);  // replayed
  EXPECT_TRUE(plain.steps[5].finite);
  for (size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_EQ(recorded.steps[i].finite, plain.steps[i].finite) << i;
    EXPECT_EQ(recorded.steps[i].loss_scale, plain.steps[i].loss_scale) << i;
    EXPECT_EQ(recorded.steps[i].lr, plain.steps[i].lr) << i;
  }
  EXPECT_EQ(distance(recorded.state, plain.state), 0);
}

// Their update does not look the same from one step to the next, or waits for the host.
TEST(RecordedSteps, LeaveOutTheUpdateOfOptimizersThatAskTheHost) {
  for (auto change : std::vector<void (*)(OptimizerConfig&)>{
           [](OptimizerConfig& c) { c.kind = OptimizerKind::kOneBitAdam, c.freeze_step = 4; },
           [](OptimizerConfig& c) { c.place = StatePlace::kHost; },
           [](OptimizerConfig& c) {
             c.kind = OptimizerKind::kMuon, c.place = StatePlace::kHost;
           }}) {
    TinyOptions options;
    change(options.optimizer);
    Calls calls;
    TinyResult plain = run({}, options, nullptr), recorded = run({}, options, &calls);
    EXPECT_EQ(distance(recorded.state, plain.state), 0);
    EXPECT_EQ(calls.recorded, 3);
  }
}

// A micro-batch whose recording is given up has been begun, and is taken again.
TEST(RecordedSteps, AreTheSameWhereRecordingIsGivenUp) {
  for (Keeping keeping : {Keeping::kAll, Keeping::kParameters}) {
    TinyOptions options;
    options.keeping = keeping;
    TinyResult plain = run({}, options, nullptr);
    options.recorder = [] { return std::make_unique<RefusingRecorder>(0); };
    TinyResult refused = TinyRun({}, options).train(0, kSteps);
    EXPECT_EQ(distance(refused.state, plain.state), 0);
  }
}

TEST_P(RecordedModels, AskTheDeviceForNothing) {
  TinyOptions options;
  GetParam().set(options);
  auto world = self_communicator();
  Mesh mesh({}, *world);
  GptNeoX model(options.model, mesh,
                {.dtypes = options.dtypes,
                 .recompute_layers = options.recompute,
                 .preference = options.preference});
  Batch batch = TinyRun({}, options).batch(0, 0);
  Tensor seed = number(1);
  RecordedWaits waits;
  Pipeline(model).train(
      2, [&](int64_t) { return batch; }, seed);
  EXPECT_EQ(RecordedWaits::found(), (std::map<std::string, int>{}));
}

// Of a GPU, which says how often it recorded.
class CountingRecorder : public GraphRecorder {
 public:
  explicit CountingRecorder(int& recorded)
      : recorder_(graph_recorder(at::Device(at::kCUDA, 0))), recorded_(recorded) {}
  Work record(int pool, const Work& work) override {
    Work graph = recorder_->record(pool, work);
    ++recorded_;
    return graph;
  }

 private:
  std::unique_ptr<GraphRecorder> recorder_;
  int& recorded_;
};

// Steps of kernels one by one, and of graphs, on the GPU; like those that the CPU takes with other
// types.
struct Tolerance {
  double graphs, cpu;
};
void expect_equal_on_gpu(TinyOptions options, const Dtypes& on_cpu, const Tolerance& tolerance) {
  TinyOptions there = options;
  there.dtypes = on_cpu;
  TinyResult cpu = TinyRun({}, there).train(0, kSteps);
  options.device = at::Device(at::kCUDA, 0);
  TinyResult plain = TinyRun({}, options).train(0, kSteps);
  EXPECT_LE(distance(plain.steps, cpu.steps), tolerance.cpu);
  int recorded = 0;
  options.recorder = [&recorded] { return std::make_unique<CountingRecorder>(recorded); };
  TinyResult graphs = TinyRun({}, options).train(0, kSteps);
  EXPECT_EQ(recorded, 5);  // as RecordedSteps says
  EXPECT_LE(distance(graphs.steps, plain.steps), tolerance.graphs);
  EXPECT_LE(distance(graphs.state, plain.state), tolerance.graphs);
}

TEST(CudaGraphs, TakeTheSameStepsAsKernelsOneByOneAndAsTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (bool dropout : {true, false})
    for (auto keeping : {Keeping::kAll, Keeping::kParameters}) {
      TinyOptions options;
      options.keeping = keeping;
      if (!dropout) options.model.hidden_dropout = options.model.attention_dropout = 0;
      expect_equal_on_gpu(options, options.dtypes, {.graphs = 1e-12, .cpu = 1e-6});
    }
}

// With heads, types and sizes that take the kernels of real models: cuDNN's or Flash Attention, and
// products of bf16 that are added to fp32. Attention sums in no fixed order.
TEST(CudaGraphs, TakeTheSameStepsInBf16) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  use_gpu(0);
  for (auto [heads, recompute] : {std::pair{8, 0}, {4, 0}, {4, 2}, {2, 0}, {1, 0}}) {
    TinyOptions options{.dtypes = {at::kBFloat16}, .precision = {.type = Precision::kBf16}};
    options.recompute = recompute;
    options.model.hidden = 256, options.model.intermediate = 1024, options.model.heads = heads;
    options.model.seq = options.model.positions = 128, options.model.vocab = 512;
    options.model.rotary_pct = 0.25, options.model.init_std = 0.02;
    options.model.hidden_dropout = options.model.attention_dropout = 0;
    expect_equal_on_gpu(options, {}, {.graphs = 2e-2, .cpu = 2e-2});
  }
}

TEST(SideStream, OnAGpuRunsBehindWhatWasBeforeAndIsJoined) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::Device gpu(at::kCUDA, 0);
  SideStream side(gpu);
  Tensor x = at::ones({4000, 4000}, at::device(gpu)), sum = at::zeros({}, at::device(gpu));
  for (int i = 0; i < 20; ++i) {
    x = at::mm(x, x) / 4000;  // ones again
    SideStream::Work join = side.run([&] { sum += x.mean(); });
    join();
  }
  EXPECT_NEAR(sum.item<float>(), 20, 1e-3);
}

TEST(CudaGraphs, RefuseWorkThatWaitsForTheHost) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::Device gpu(at::kCUDA, 0);
  auto recorder = graph_recorder(gpu);
  Tensor x = at::ones({3}, at::device(gpu)), y = at::ones({3}, at::device(gpu));
  EXPECT_ANY_THROW(recorder->record(0, [&] { x[0].item(); }));
  auto work = recorder->record(0, [&] { y += x; });  // and goes on
  work(), work();
  EXPECT_EQ(y.sum().item<float>(), 9);
}

TEST(CudaGraphs, TakeAPoolAgainThatNoGraphUses) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::Device gpu(at::kCUDA, 0);
  auto recorder = graph_recorder(gpu);
  Tensor y = at::zeros({3}, at::device(gpu));
  for (int i = 0; i < 3; ++i) recorder->record(1, [&] { y += at::ones({3}, at::device(gpu)); })();
  EXPECT_EQ(y.sum().item<float>(), 9);
}

}  // namespace
}  // namespace neox
