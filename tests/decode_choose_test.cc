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

TEST(Choose, WhatChangesLogitsIsNotGreedy) {
  EXPECT_TRUE(is_greedy({}));
  EXPECT_FALSE(is_greedy({.bias = {{0, 1}}}));
  EXPECT_FALSE(is_greedy({.presence_penalty = 1}));
  EXPECT_FALSE(is_greedy({.frequency_penalty = 1}));
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
