// Parameters are gathered beside the next forward pass, gradients summed beside the backward pass,
// and nothing reads them before they are there: with a second stream that is as late as it may be,
// steps are the same bits.
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "late_stream.h"
#include "rerun_recorder.h"
#include "tiny_run.h"

namespace neox {
namespace {

constexpr int64_t kPublished = 4;

const ModelOption kCases[] = {{"plain", [](TinyOptions&) {}},
                              {"Zero2, tied, sequential",
                               [](TinyOptions& o) {
                                 o.keeping = Keeping::kParameters;
                                 o.model.tied_embedding = true;
                                 o.model.parallel_residual = false;
                               }},
                              {"Zero3", [](TinyOptions& o) { o.keeping = Keeping::kChunks; }},
                              {"Zero3, recomputed, bf16",
                               [](TinyOptions& o) {
                                 o.keeping = Keeping::kChunks;
                                 o.recompute = 2;
                                 o.dtypes = {at::kBFloat16, at::kFloat, at::kFloat};
                                 o.precision = {.type = Precision::kBf16};
                               }},
                              {"recomputed",
                               [](TinyOptions& o) {
                                 o.recompute = 2;
                                 o.micro = 2;
                               }},
                              {"sequence parallel, bf16",
                               [](TinyOptions& o) {
                                 o.model.seq = 8;
                                 o.splits_tokens = true;
                                 o.dtypes = {at::kBFloat16, at::kFloat, at::kFloat};
                                 o.precision = {.type = Precision::kBf16};
                               }},
                              {"relative positions, bf16",
                               [](TinyOptions& o) {
                                 with_relative_positions(o);
                                 o.dtypes = {at::kBFloat16, at::kFloat, at::kFloat};
                                 o.precision = {.type = Precision::kBf16};
                               }},
                              {"recorded", [](TinyOptions& o) {
                                 static RerunRecorder::Calls calls;
                                 o.recorder = [] { return std::make_unique<RerunRecorder>(calls); };
                               }}};

class LateLayouts : public testing::TestWithParam<Layout> {};

TEST_P(LateLayouts, TakeTheSameSteps) {
  at::set_num_threads(1);
  for (const ModelOption& c : kCases) {
    TinyOptions options;
    c.set(options);
    TinyResult plain = TinyRun(GetParam(), options).train(0, kPublished);
    options.side = [] { return std::make_shared<LateStream>(); };
    TinyResult late = TinyRun(GetParam(), options).train(0, kPublished);
    EXPECT_EQ(distance(late.steps, plain.steps), 0) << c.name;
    EXPECT_EQ(distance(late.state, plain.state), 0) << c.name;
    EXPECT_EQ(late.copies_differ, "") << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LateLayouts,
                         testing::Values(Layout{.shard = 2}, Layout{.shard = 3},
                                         Layout{.replicate = 2, .shard = 2},
                                         Layout{.shard = 3, .tp = 2}, Layout{.pp = 2, .shard = 3},
                                         Layout{.pp = 4, .shard = 2},
                                         Layout{.pp = 2, .shard = 2, .tp = 2}));

TEST(Publish, IsWaitedForWhereABucketIsUsed) {
  run_thread_ranks(2, [](Communicator& world, Control&) {
    auto side = std::make_shared<LateStream>();
    ParamBuffer buffer("b", {{.name = "w", .shape = {13}, .tp_dim = {}}},
                       {.shard = &world, .sum = {}}, {.side = side});
    const Tensor& w = buffer.param(0);
    buffer.master().fill_(world.rank() + 1);
    buffer.publish();
    Tensor before = w.detach().clone();
    EXPECT_EQ(before[world.rank() == 0 ? 12 : 0].item<double>(), 0);  // the other rank's
    EXPECT_EQ(buffer.chunk_size(), 8);                                // 16 bytes of bf16
    EXPECT_TRUE(buffer.param(0).equal(at::cat({at::ones({8}), at::full({5}, 2.0)})));
    EXPECT_EQ(side->waiting(), 0);
  });
}

// Two buckets of vectors, one for the embedding, one for each layer, one for the head.
TEST(Publish, IsWaitedForLayerByLayer) {
  at::set_num_threads(1);
  run_thread_ranks(2, [](Communicator& world, Control&) {
    auto side = std::make_shared<LateStream>();
    TinyOptions options;
    Mesh mesh({.shard = 2}, world);
    GptNeoX model(options.model, mesh, {.dtypes = options.dtypes, .side = side});
    EXPECT_EQ(side->waiting(), 9);
    Batch batch = TinyRun({}, options).batch(0, 0);
    Pipeline(model).evaluate(1, [&](int64_t) { return batch; });
    EXPECT_EQ(side->left(), (std::vector<int64_t>{6, 5, 4, 3, 2, 1, 0}));
  });
}

// Of the matrices of layers two are there at most at a time, of one that is used and of the next.
class GatherCounter : public LateStream {
 public:
  Work run(const Work& work) override {
    if (model) most_here = std::max(most_here, here());
    return LateStream::run(work);
  }
  int64_t here() const {
    return std::ranges::count_if(model->buffers(), [](ParamBuffer* buffer) {
      int64_t whole = 2 * buffer->chunk_size() * c10::elementSize(buffer->master().scalar_type());
      return buffer->gathered_around_use() && buffer->memory().params == whole;
    });
  }
  GptNeoX* model = nullptr;
  int64_t most_here = 0;
};

TEST(ZeroThree, HoldsTwoLayersAtATime) {
  at::set_num_threads(1);
  for (auto [layout, recompute] : {std::pair{Layout{.shard = 2}, 0},
                                   {Layout{.shard = 2}, 1},
                                   {Layout{.shard = 2}, 2},
                                   {Layout{.pp = 2, .shard = 2}, 0},
                                   {Layout{.pp = 2, .shard = 2}, 2}}) {
    run_thread_ranks(layout.size(), [layout, recompute](Communicator& world, Control&) {
      auto side = std::make_shared<GatherCounter>();
      TinyOptions options;
      Mesh mesh(layout, world);
      GptNeoX model(options.model, mesh,
                    {.dtypes = options.dtypes,
                     .keeping = Keeping::kChunks,
                     .recompute_layers = recompute,
                     .side = side});
      side->model = &model;
      EXPECT_EQ(side->here(), 0);
      Batch batch = TinyRun({}, options).batch(0, 0);
      auto batches = [&](int64_t) { return batch; };
      Pipeline pipeline(model);
      for (int step : {0, 1}) {
        pipeline.evaluate(1, batches);
        EXPECT_EQ(side->here(), 0) << step;
        pipeline.train(4, batches, at::ones({}, at::kDouble));
        EXPECT_EQ(side->here(), 0) << step;
      }
      EXPECT_EQ(side->most_here, 2) << to_string(layout) << ", " << recompute;
      EXPECT_EQ(side->waiting(), 0);
    });
  }
}

TEST(ZeroThree, KeepsWhatGenerationUsesUntilItIsLetGo) {
  at::set_num_threads(1);
  run_thread_ranks(2, [](Communicator& world, Control&) {
    auto side = std::make_shared<GatherCounter>();
    TinyOptions options;
    Mesh mesh({.shard = 2}, world);
    GptNeoX model(options.model, mesh,
                  {.dtypes = options.dtypes, .keeping = Keeping::kChunks, .side = side});
    side->model = &model;
    model.keep_gathered(true);
    Batch batch = TinyRun({}, options).batch(0, 0);
    Pipeline(model).evaluate(1, [&](int64_t) { return batch; });
    EXPECT_EQ(side->here(), options.model.layers);
    model.keep_gathered(false);
    EXPECT_EQ(side->here(), 0);
  });
}

// Gradients of which the chunk alone is kept take the memory of a few of the 9 buckets.
TEST(Sync, HoldsFewBucketsThatAreNotKept) {
  at::set_num_threads(1);
  run_thread_ranks(2, [](Communicator& world, Control&) {
    auto side = std::make_shared<LateStream>();
    TinyOptions options;
    Mesh mesh({.shard = 2}, world);
    GptNeoX model(options.model, mesh,
                  {.dtypes = options.dtypes, .keeping = Keeping::kParameters, .side = side});
    Batch batch = TinyRun({}, options).batch(0, 0);
    auto batches = [&](int64_t) { return batch; };
    Pipeline pipeline(model);
    pipeline.evaluate(1, batches);  // waits for all parameters
    EXPECT_EQ(side->most(), 9);
    pipeline.train(1, batches, at::ones({}, at::kDouble));
    EXPECT_EQ(side->most(), SideStream::kHeld + 1);
    EXPECT_EQ(side->waiting(), 0);
  });
}

}  // namespace
}  // namespace neox
