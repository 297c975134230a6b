// Logits that are changed before a token is chosen: biases, and OpenAI's penalties.
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <set>

#include "decode_model.h"

namespace neox::testing {
namespace {

TEST(Choose, ABiasIsAddedToTheLogitsOfItsTokens) {
  at::Tensor logits = at::tensor({1.0, 2.0, 3.0});
  const at::Tensor before = logits.clone();
  EXPECT_EQ(choose(logits, {.bias = {{0, 2.5}, {1, 0.5}}}, 0), 0);
  EXPECT_EQ(choose(logits, {.vocab = 2, .bias = {{2, 100}}}, 0), 1);
  for (int64_t position = 0; position < 20; ++position) {
    EXPECT_NE(choose(logits, {.temperature = 1, .key = 3, .bias = {{2, -100}}}, position), 2);
    EXPECT_EQ(choose(logits, {.temperature = 5, .key = 3, .bias = {{1, 100}}}, position), 1);
  }
  EXPECT_TRUE(logits.equal(before));
}

TEST(Choose, PenaltiesCountTheTokensOfTheText) {
  at::Tensor logits = at::tensor({1.0, 2.0, 3.0});
  EXPECT_EQ(choose(logits, {.presence_penalty = 1.5}, 0, {}), 2);
  EXPECT_EQ(choose(logits, {.presence_penalty = 1.5}, 0, {{2, 9}}), 1);
  EXPECT_EQ(choose(logits, {.presence_penalty = 1.5}, 0, {{2, 9}, {1, 1}}), 2);
  EXPECT_EQ(choose(logits, {.frequency_penalty = 0.9}, 0, {{2, 1}}), 2);
  EXPECT_EQ(choose(logits, {.frequency_penalty = 0.9}, 0, {{2, 2}}), 1);
  EXPECT_EQ(choose(logits, {.presence_penalty = -1.5}, 0, {{1, 1}}), 1);
  EXPECT_EQ(choose(logits, {.presence_penalty = 0.6, .frequency_penalty = 0.5}, 0, {{2, 1}}), 1);
}

// transformers' RepetitionPenaltyLogitsProcessor: 3 / 1.6 and -1 x 1.6.
TEST(Choose, ARepetitionPenaltyCountsTokensOfPromptAndTextOnce) {
  at::Tensor logits = at::tensor({-1.0, 2.0, 3.0, -1.5});
  EXPECT_EQ(choose(logits, {.repetition_penalty = 1.4}, 0, {{2, 7}}), 2);
  EXPECT_EQ(choose(logits, {.repetition_penalty = 1.6}, 0, {{2, 7}}), 1);
  EXPECT_EQ(choose(logits, {.repetition_penalty = 1.6}, 0, {{2, 0}}), 1);
  EXPECT_EQ(choose(logits, {.bias = {{1, -9}, {2, -9}}, .repetition_penalty = 1.6}, 0, {{0, 1}}),
            3);
  // Behind it, once for each of the text.
  EXPECT_EQ(choose(logits, {.repetition_penalty = 1.4, .frequency_penalty = 0.1}, 0, {{2, 1}}), 2);
  EXPECT_EQ(choose(logits, {.repetition_penalty = 1.4, .frequency_penalty = 0.1}, 0, {{2, 2}}), 1);
}

// transformers' MinPLogitsWarper, behind temperature, top_k and top_p.
TEST(Choose, MinPLeavesWhatIsLikelyBesideTheLikeliest) {
  at::Tensor logits = at::tensor({0.0, 3.0, 2.0, 2.5});
  auto drawn = [&](Sampling s) {
    std::set<int64_t> all;
    for (s.key = 0; s.key < 400; ++s.key) all.insert(choose(logits, s, 1));
    return all;
  };
  using Ids = std::set<int64_t>;
  EXPECT_EQ(drawn({.min_p = 0.04}), (Ids{0, 1, 2, 3}));  // exp(-3) = 0.0498
  EXPECT_EQ(drawn({.min_p = 0.06}), (Ids{1, 2, 3}));
  EXPECT_EQ(drawn({.min_p = 0.5}), (Ids{1, 3}));  // exp(-0.5) = 0.61, exp(-1) = 0.37
  EXPECT_EQ(drawn({.temperature = 2, .min_p = 0.5}), (Ids{1, 2, 3}));
  EXPECT_EQ(drawn({.top_k = 2, .min_p = 0.06}), (Ids{1, 3}));
  EXPECT_EQ(drawn({.top_p = 0.6, .min_p = 0.06}), (Ids{1, 3}));
  EXPECT_EQ(drawn({.min_p = 1}), Ids{1});
}

TEST(Choose, WhatChangesLogitsIsNotGreedy) {
  EXPECT_TRUE(is_greedy({}));
  EXPECT_FALSE(is_greedy({.bias = {{0, 1}}}));
  EXPECT_FALSE(is_greedy({.presence_penalty = 1}));
  EXPECT_FALSE(is_greedy({.frequency_penalty = 1}));
  EXPECT_FALSE(is_greedy({.repetition_penalty = 1.1}));
  EXPECT_FALSE(is_greedy({.min_p = 0.1}));
}

// The prompt's, too.
TEST(Batch, ARepetitionPenaltyKeepsTokensOfThePromptAway) {
  Model model;
  for (TextRequest& r : requests({})) {
    r.sampling.repetition_penalty = 1e30;
    std::set<int32_t> before(r.prompt.begin(), r.prompt.end());
    std::vector<int32_t> text = model.texts({r}, 1).front();
    for (int32_t token : text) EXPECT_TRUE(before.insert(token).second) << token;
  }
}

// Beside others that have none, also where steps are recorded.
TEST(Batch, APenaltyCountsTheTokensOfItsTextAlone) {
  RerunRecorder::Calls calls;
  for (const Recorder& recorder : {Recorder(graph_recorder), rerun(calls)}) {
    Model model({}, at::kFloat, at::kCPU, recorder);
    std::vector<TextRequest> all = requests({});
    for (size_t i = 0; i < all.size(); i += 2) all[i].sampling.frequency_penalty = 1e6;
    Texts alone;
    for (const TextRequest& r : all) alone.push_back(model.texts({r}, 1).front());
    Texts together = model.texts(all, 4);
    EXPECT_EQ(together, alone);
    for (size_t i = 0; i < all.size(); i += 2)
      EXPECT_EQ(std::set(together[i].begin(), together[i].end()).size(), together[i].size()) << i;
  }
}

}  // namespace
}  // namespace neox::testing
