// Generation with fused kernels and in recorded steps: the model's own layers are the reference.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <set>

#include "decode_model.h"
#include "model/fused_decode.h"
#include "ops/bf16_product.h"
#include "recorded_waits.h"
#include "run_fixture.h"

namespace neox::testing {
namespace {

TEST(FusedDecode, GivesTheLogitsOfTheModelsOwnLayers) {
  for (int threads : {1, 3}) {
    at::set_num_threads(threads);
    for (ModelOption option : all_options()) {
      Model model(option);
      ASSERT_TRUE((*model).new_cache(1, 1).fused) << option.name;
      for (int64_t batch : {1, 4})
        EXPECT_LT(relative(model.logits(batch, By::kFused), model.logits(batch, By::kLayers)), 1e-5)
            << option.name << " batch " << batch;
    }
  }
  at::set_num_threads(1);
}

TEST(FusedDecode, IsNearTheModelsOwnLayersInBf16) {
  for (const ModelOption& option : all_options()) {
    Model half(option, at::kBFloat16);
    EXPECT_LT(relative(half.logits(3, By::kFused), half.logits(3, By::kLayers)), 0.2)
        << option.name;
  }
}

// Six steps are done each time, and weights are packed behind the eighth.
TEST(FusedDecode, KeepsItsBitsWithPackedWeights) {
  for (int threads : {1, 3}) {
    at::set_num_threads(threads);
    for (const ModelOption& option : all_options()) {
      Model model(option, at::kBFloat16, at::kCPU, graph_recorder, 128);
      Tensor first = model.logits(3, By::kFused);
      for (int again = 0; again < 2; ++again)
        EXPECT_TRUE(model.logits(3, By::kFused).equal(first)) << option.name << " " << again;
    }
  }
  at::set_num_threads(1);
}

TEST(PackedModel, PacksOnceSoManyStepsWereDone) {
  Tensor w = at::randn({64, 256}).to(at::kBFloat16), small = w.narrow(0, 0, 8);
  std::vector<WeightMatrix> m;
  for (const Tensor& x : {w, small})
    m.push_back({x.const_data_ptr(), WeightType::kBfloat16, x.size(0), x.size(1)});
  PackedModel packed(WeightPacking::kAlways);
  for (int step = 1; step <= 9; ++step) {
    EXPECT_EQ(packed.count_step(row_kernels(), {&m[0], &m[1]}, 2), step >= 8);
    EXPECT_EQ(packed.of(m[0]) != nullptr, step >= 8 && row_kernels().pack);
  }
  m[1].data = w.const_data_ptr<at::BFloat16>() + 8 * 256;
  EXPECT_EQ(packed.of(m[1]), nullptr);
}

TEST(FusedDecode, ReadsLongPromptsAsTheModelsOwnLayers) {
  for (int threads : {1, 3}) {
    at::set_num_threads(threads);
    for (auto [type, tolerance] : {std::pair{at::kFloat, 1e-5}, {at::kBFloat16, 0.2}})
      for (const ModelOption& option : kModelOptions) {
        Model model(option, type);
        EXPECT_LT(relative(model.logits_of_prompt(21, true), model.logits_of_prompt(21, false)),
                  tolerance)
            << option.name << " " << type << " on " << threads;
      }
  }
  at::set_num_threads(1);
}

// In double, where the model's own layers read prompts: padded ones give what each gives alone, and
// so does what follows them.
TEST(PaddedPrompts, GiveTheLogitsOfEachAlone) {
  at::NoGradGuard no_grad;
  for (const ModelOption& option : all_options()) {
    Model model(option, at::kDouble);
    at::manual_seed(1);
    std::vector<int64_t> lengths = {5, 9, 1, 9};
    Tensor tokens = at::randint(28, {24}, at::kLong), next = at::randint(28, {4, 1}, at::kLong);
    KvCache alone = (*model).new_cache(4, 24), together = (*model).new_cache(4, 24);
    std::vector<Tensor> each;
    for (int64_t b = 0, first = 0; b < 4; first += lengths[static_cast<size_t>(b++)]) {
      auto n = lengths[static_cast<size_t>(b)];
      KvCache row = alone.narrow(b, 1);
      each.push_back((*model).generate_step({}, tokens.narrow(0, first, n).unsqueeze(0), row));
      alone.lengths[static_cast<size_t>(b)] = n;
    }
    EXPECT_LT(relative((*model).read_prompts(tokens, lengths, together), at::cat(each)), 1e-12)
        << option.name;
    EXPECT_EQ(together.lengths, lengths);
    Tensor got = (*model).generate_step({}, next, together);
    EXPECT_LT(relative(got, (*model).generate_step({}, next, alone)), 1e-12) << option.name;
  }
}

// The logits behind prompts, and of a step more, [2 B, V]; undefined where the prompts are not
// taken together.
Tensor logits_of_prompts(Model& model, const std::vector<int64_t>& lengths, bool together) {
  at::NoGradGuard no_grad;
  at::manual_seed(1);
  auto rows = std::ssize(lengths);
  KvCache cache = (*model).new_cache(rows, 24);
  std::vector<Tensor> tokens, all;
  for (int64_t n : lengths) tokens.push_back(at::randint(28, {1, n}, at::kLong));
  if (together) {
    if (cache.fused->prompts_together(lengths) < lengths.size()) return {};
    all.push_back(cache.fused->prompts(at::cat(tokens, 1), lengths, cache));
  }
  for (int64_t b = 0; b < rows && !together; ++b) {
    KvCache row = cache.narrow(b, 1);
    all.push_back((*model).generate_step({}, tokens[static_cast<size_t>(b)], row));
    cache.lengths[static_cast<size_t>(b)] = row.lengths.front();
  }
  all.push_back((*model).generate_step({}, at::randint(28, {rows, 1}, at::kLong), cache));
  return at::cat(all);
}

TEST(FusedDecode, ReadsPromptsTogetherWithTheBitsOfEachAlone) {
  const std::vector<std::vector<int64_t>> kLengths = {{3, 16, 1}, {17, 21, 20, 18}};
  for (at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const auto& lengths : kLengths)
      for (int64_t hidden : {20, 64})
        for (const ModelOption& option : kModelOptions) {
          Model model(option, type, at::kCPU, graph_recorder, hidden);
          Tensor together = logits_of_prompts(model, lengths, true);
          bool pairs = type == at::kBFloat16 && bf16_kernels();
          ASSERT_EQ(together.defined(), lengths.front() == 3 || pairs) << option.name;
          bool same =
              !together.defined() || together.equal(logits_of_prompts(model, lengths, false));
          EXPECT_TRUE(same) << option.name << " " << type << " hidden " << hidden;
        }
}

TEST(FusedDecode, ReadsPromptsTogetherThatAreAlike) {
  Model model({}, at::kBFloat16);
  auto fused = (*model).new_cache(1, 1).fused;
  auto together = [&](std::vector<int64_t> lengths) { return fused->prompts_together(lengths); };
  EXPECT_EQ(together({3, 16, 17, 5}), 2u);
  if (!bf16_kernels()) GTEST_SKIP() << "no kernels for longer prompts of bf16";
  EXPECT_EQ(together({17, 30, 16}), 2u);
  EXPECT_EQ(together({600, 424, 17}), 2u);
  EXPECT_EQ(together({600, 425}), 1u);
  EXPECT_EQ(together({2000, 20}), 1u);
}

TEST(FusedDecode, LeavesPromptsToLayersWithExperts) {
  for (const ModelOption& option : kExpertOptions) {
    const int64_t lengths[] = {3};
    EXPECT_EQ((*Model(option)).new_cache(1, 1).fused->prompts_together(lengths), 0U);
  }
}

TEST(FusedDecode, IsForFloatAndBf16) {
  EXPECT_FALSE((*Model({}, at::kDouble)).new_cache(1, 1).fused);
}

TEST(ReplayedDecode, GivesTheLogitsOfTheModelsOwnLayers) {
  at::set_num_threads(1);
  for (const ModelOption& option : kModelOptions)
    for (int64_t batch : {1, 4}) {
      Model model(option, at::kDouble);
      EXPECT_LT(relative(model.logits(batch, By::kReplay), model.logits(batch, By::kLayers)), 1e-6)
          << option.name << " batch " << batch;
      EXPECT_EQ(model.calls.recorded, 1);
      EXPECT_EQ(model.calls.replayed, 6 - Replay::kWarmUps);
    }
}

TEST(ReplayedDecode, ByKernelsForFewRowsGivesTheLogitsOfTheModelsOwnLayers) {
  at::set_num_threads(1);
  for (const ModelOption& option : kModelOptions)
    for (int64_t batch : {1, 4}) {
      Model model(option, at::kDouble);
      if ((*model).config().qk_norm) continue;  // these have none
      EXPECT_LT(relative(model.logits(batch, By::kRowKernels), model.logits(batch, By::kLayers)),
                1e-6)
          << option.name << " batch " << batch;
      EXPECT_EQ(model.calls.recorded, 1);
    }
}

// Rows that end make room, which the steps then compute in vain; the shapes stay.
TEST(ReplayedDecode, GoesOnAfterARowHasEnded) {
  at::NoGradGuard no_grad;
  at::set_num_threads(1);
  Model model({}, at::kDouble);
  auto logits = [&](By by) {
    bool replayed = by != By::kLayers;
    KvCache cache = (*model).new_cache(3, 24);
    if (replayed) cache.replay = model.replay(3);
    if (by == By::kRowKernels) cache.replay->use_row_kernels((*model).config().heads);
    std::vector<Tensor> all;
    for (int64_t i = 0; i < 9; ++i) {
      if (i == 2) cache.drop_row(0);
      if (i == 4) cache.lengths.push_back(0);
      Tensor tokens = at::arange(cache.rows(), at::kLong).unsqueeze(1) + i;
      all.push_back((*model).generate_step({}, tokens, cache).flatten());
      if (replayed && i == 3) {  // an empty row stays where it is
        EXPECT_EQ(cache.replay->lengths()[2].item<int64_t>(), 0);
      }
    }
    return at::cat(all);
  };
  Tensor wanted = logits(By::kLayers);
  EXPECT_LT(relative(logits(By::kReplay), wanted), 1e-12);
  EXPECT_LT(relative(logits(By::kRowKernels), wanted), 1e-12);
  EXPECT_EQ(model.calls.recorded, 2);
}

TEST(ReplayedDecode, LooksAtMoreKeysWhereARowIsLonger) {
  at::NoGradGuard no_grad;
  at::set_num_threads(1);
  constexpr int64_t kPart = DecodeReplay::kSeen;
  ModelConfig config = Model::config({});
  config.positions = 3 * kPart;
  auto world = self_communicator();
  Mesh mesh({}, *world);
  GptNeoX model(
      config, mesh,
      {.dtypes = {at::kDouble, at::kDouble, at::kDouble}, .keeping = Keeping::kNoGradients});
  RerunRecorder::Calls calls;
  auto logits = [&](bool replayed) {
    KvCache cache = model.new_cache(1, 2 * kPart);
    if (replayed)
      cache.replay = std::make_shared<DecodeReplay>(rerun(calls)(at::kCPU), 1, at::kCPU);
    std::vector<Tensor> all;
    model.generate_step({}, at::arange(kPart - 4, at::kLong).remainder(28).unsqueeze(0), cache);
    for (int64_t i = 0; i < 8; ++i)
      all.push_back(model.generate_step({}, at::full({1, 1}, i, at::kLong), cache));
    return at::stack(all);
  };
  EXPECT_LT(relative(logits(true), logits(false)), 1e-12);
  EXPECT_EQ(calls.recorded, 2);
}

TEST(TokensOnTheDevice, AreThoseThatTheHostChooses) {
  at::set_num_threads(1);
  for (const ModelOption& option : kModelOptions)
    for (Sampling sampling :
         {Sampling{}, {.vocab = 19}, {.temperature = 1, .top_k = 9, .key = 7}}) {
      RerunRecorder::Calls calls;
      Model device(option, at::kDouble, at::kCPU, rerun(calls)), host(option, at::kDouble);
      std::vector<TextRequest> all = requests(sampling);
      for (int64_t batch_size : {1, 4})
        EXPECT_EQ(device.texts(all, batch_size), host.texts(all, batch_size)) << option.name;
      EXPECT_GT(calls.replayed, 20);
    }
}

TEST(TokensOnTheDevice, BehindTheEndOfATextAreNotSeen) {
  RerunRecorder::Calls calls;
  Model device({}, at::kDouble, at::kCPU, rerun(calls)), host({}, at::kDouble);
  std::vector<TextRequest> all = requests({});
  Texts open = host.texts(all, 4);
  for (size_t place : {size_t{0}, size_t{2}, size_t{5}}) {
    int32_t end = open[8][place];
    Texts ended = device.texts(all, 4, {end});
    EXPECT_EQ(ended, host.texts(all, 4, {end}));
    EXPECT_LE(ended[8].size(), place);
  }
}

TEST(TokensOnTheDevice, AreToldInTheirOrderUntilTheCallerEndsATextOfThem) {
  RerunRecorder::Calls calls;
  Model device({}, at::kDouble, at::kCPU, rerun(calls));
  std::vector<TextRequest> all = requests({});
  Texts open = device.texts(all, 3), seen(all.size());
  std::vector<size_t> ended;
  Texts texts = generate(*device, all,
                         {.batch_size = 3,
                          .on_token =
                              [&](size_t i, int32_t token) {
                                seen[i].push_back(token);
                                return i % 2 == 0 || seen[i].size() < 2;
                              },
                          .on_end = [&](size_t i, TextEnd) { ended.push_back(i); }});
  EXPECT_EQ(seen, texts);
  EXPECT_EQ(std::set(ended.begin(), ended.end()).size(), all.size());
  EXPECT_EQ(ended.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(texts[i], Tokens(open[i].begin(), i % 2 == 0 ? open[i].end() : open[i].begin() + 2));
}

TEST(TokensOnTheDevice, AreReadSomeStepsBehind) {
  constexpr int kTokens = 14, kAhead = 3;
  RerunRecorder::Calls calls;
  Model device({}, at::kDouble, at::kCPU, rerun(calls));
  TextRequest request{{1, 2, 3}, {.max_tokens = kTokens}};
  std::vector<int> steps;  // that the device was given, at each token
  generate(*device, {&request, 1}, {.on_token = [&](size_t, int32_t) {
    steps.push_back(calls.replayed);
    return true;
  }});
  ASSERT_EQ(steps.size(), size_t{kTokens});
  for (int i = 0; i < kTokens; ++i)  // the first one is of the prompt
    EXPECT_EQ(steps[static_cast<size_t>(i)],
              std::max(0, std::min(i + kAhead, kTokens - 1) - Replay::kWarmUps))
        << i;
}

TEST(TokensOnTheDevice, AskItForNothing) {
  at::set_num_threads(1);
  for (const ModelOption& option : kModelOptions) {
    RerunRecorder::Calls calls;
    Model device(option, at::kDouble, at::kCPU, rerun(calls));
    RecordedWaits waits;
    device.texts(requests({}), 4, {3});
    EXPECT_EQ(RecordedWaits::found(), (std::map<std::string, int>{})) << option.name;
  }
}

TEST(ReplayedDecode, OnAGpuGivesTheTextsOfTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  std::vector<TextRequest> all = requests({});
  for (const ModelOption& option : kModelOptions)
    for (int64_t hidden : {20, 64}) {
      Model gpu(option, at::kDouble, at::Device(at::kCUDA, 0), graph_recorder, hidden),
          cpu(option, at::kDouble, at::kCPU, graph_recorder, hidden);
      auto replay = (*gpu).new_cache(1, 1).replay;
      ASSERT_TRUE(replay);
      EXPECT_EQ(replay->arrived.defined(), hidden == 64 && !(*gpu).config().qk_norm) << option.name;
      for (int64_t batch_size : {1, 4})
        for (const Tokens& ends : {Tokens{}, Tokens{3}})
          EXPECT_EQ(gpu.texts(all, batch_size, ends), cpu.texts(all, batch_size, ends))
              << option.name << " hidden " << hidden;
    }
}

}  // namespace
}  // namespace neox::testing
