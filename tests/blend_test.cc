#include "data/blend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace neox {
namespace {

using ::testing::ElementsAre;

std::vector<int> blend(std::vector<double> weights, int64_t size) {
  BlendIndex index = build_blend(weights, size);
  return {index.dataset.begin(), index.dataset.end()};
}

TEST(Blend, IsGolden) {
  EXPECT_THAT(blend({.5, .3, .2}, 20),
              ElementsAre(0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 0, 1, 2, 0, 1, 0, 2, 0, 1, 0));
}

TEST(Blend, CountsTheSamplesOfEach) {
  BlendIndex index = build_blend(std::vector<double>{5, 3, 2}, 10);
  EXPECT_THAT(index.sample, ElementsAre(0, 0, 0, 1, 1, 2, 1, 3, 2, 4));
}

// The rule with every product and difference rounded once, together, as contracted code does.
std::vector<int> contracted(const std::vector<double>& weights, int64_t size) {
  std::vector<double> drawn(weights.size());
  std::vector<int> found;
  for (int64_t k = 0; k < size; ++k) {
    std::vector<double> errors;
    for (size_t i = 0; i < weights.size(); ++i)
      errors.push_back(std::fma(weights[i], std::max(static_cast<double>(k), 1.0), -drawn[i]));
    auto most = std::max_element(errors.begin(), errors.end()) - errors.begin();
    found.push_back(static_cast<int>(most));
    drawn[static_cast<size_t>(most)] += 1;
  }
  return found;
}

// Weights of which products tie after rounding, and not before. The order is numpy's.
TEST(Blend, RoundsProductsBeforeDifferences) {
  const std::vector<double> weights = {0.1, 0.2, 0.7};
  const std::vector<int> wanted = {2, 1, 2, 0, 2, 2, 1, 2, 2, 2, 0, 2, 1, 2, 2, 2, 1, 2, 2, 2};
  std::vector<int> found = blend(weights, 400);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), found.begin()));
  EXPECT_NE(contracted(weights, 400), found);
}

TEST(Blend, SumsPairwiseLikeNumpy) {
  std::vector<double> values(300);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0 / static_cast<double>(i + 1);
  auto sum = [&](size_t n) { return numpy_sum(std::span(values).first(n)); };
  EXPECT_EQ(sum(7), 2.5928571428571425);
  EXPECT_EQ(sum(8), 2.7178571428571425);
  EXPECT_EQ(sum(20), 3.597739657143682);
  EXPECT_EQ(sum(128), 5.433147092589173);
  EXPECT_EQ(sum(300), 6.282663880299504);
  EXPECT_NE(sum(300), std::accumulate(values.begin(), values.end(), 0.0));
}

TEST(Blend, AsksForHalfAPercentMore) {
  BlendPlan neox = plan_blend(DataOrder::kNeox, {1, 3}, 2, 1001);
  EXPECT_THAT(neox.samples, ElementsAre(252, 755));
  BlendPlan core = plan_blend(DataOrder::kMegatronCore, {1, 3}, 2, 1001);
  EXPECT_THAT(core.samples, ElementsAre(253, 755));
  EXPECT_EQ(core.size, 251 + 751);
  EXPECT_THAT(plan_blend(DataOrder::kMegatronCore, {}, 2, 9).samples,
              ElementsAre(kOneEpoch, kOneEpoch));
  EXPECT_THAT(plan_blend(DataOrder::kMegatron, {}, 2, 9).samples, ElementsAre(5, 5));
}

TEST(Blend, WeighsByDocuments) {
  std::vector<int64_t> one = {5}, two = {100, 300};
  EXPECT_THAT(weights_by_documents(one, 0.3), ElementsAre(1.0));
  auto weights = weights_by_documents(two, 1.0);
  EXPECT_THAT(weights, ElementsAre(0.5, 0.5));
  EXPECT_GT(weights_by_documents(two, 0.3)[0], 0.5);  // more of the small one
}

}  // namespace
}  // namespace neox
