#include "ops/random.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/dropout.h"

namespace neox {
namespace {

TEST(Philox, MatchesThePublishedVectors) {  // Random123's kat_vectors, philox4x32-10
  Random4 zero = philox(0, 0, 0);
  EXPECT_EQ(zero.v[0], 0x6627e8d5u);
  Random4 ones = philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0});
  EXPECT_EQ(ones.v[0], 0x408f276du);
  EXPECT_EQ(ones.v[1], 0x41c83b0eu);
  EXPECT_EQ(ones.v[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.v[3], 0x6d5451fdu);
}

TEST(Random, ASliceHasTheValuesOfTheWhole) {
  std::vector<float> all(1000), part(123);
  normal_at(5, 0, all);
  normal_at(5, 77, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 77));
}

TEST(Random, NormalValuesHaveMeanZeroAndDeviationOne) {
  std::vector<float> x(1 << 20);
  normal_at(random_key(1234, "layers.0.weight"), 0, x);
  at::Tensor t = at::from_blob(x.data(), {1 << 20}, at::kFloat).to(at::kDouble);
  EXPECT_NEAR(t.mean().item<double>(), 0, 0.005);
  EXPECT_NEAR(t.square().mean().item<double>(), 1, 0.005);
  EXPECT_NEAR(t.pow(4).mean().item<double>(), 3, 0.05);
}

TEST(Random, KeysOfDifferentNamesAndSeedsDiffer) {
  EXPECT_NE(random_key(1, "a"), random_key(1, "b"));
  EXPECT_NE(random_key(1, "a"), random_key(2, "a"));
}

TEST(Dropout, IsAFunctionOfSampleAndPositionOnly) {
  DropoutSite site{.key = 9, .first_sample = at::scalar_tensor(40, at::kLong)};
  at::Tensor x = at::ones({4, 6, 10}, at::kDouble), y = dropout(x, 0.3, site);
  site.first_sample = at::scalar_tensor(42, at::kLong);
  EXPECT_TRUE(dropout(x.narrow(0, 0, 2), 0.3, site).equal(y.narrow(0, 2, 2)));
  site.offset = 20;  // the last four rows of a sample's six
  EXPECT_TRUE(dropout(x.narrow(0, 0, 2).narrow(1, 0, 4), 0.3, site)
                  .equal(y.narrow(0, 2, 2).narrow(1, 2, 4)));
}

TEST(Dropout, KeepsTheMeanAndMasksTheGradientAlike) {
  at::Tensor x = at::ones({16, 4096}, at::kDouble).set_requires_grad(true);
  at::Tensor y = dropout(x, 0.25, {.key = 3});
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.01);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y.detach()));
}

TEST(Dropout, OnAGpuEqualsTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    at::Tensor x = at::ones({3, 5, 7}, type);
    DropoutSite site{.key = 11, .first_sample = at::scalar_tensor(2, at::kLong), .offset = 3};
    DropoutSite there = site;
    there.first_sample = site.first_sample.to(at::kCUDA);
    EXPECT_TRUE(dropout(x.to(at::kCUDA), 0.4, there).cpu().equal(dropout(x, 0.4, site)));
  }
}

}  // namespace
}  // namespace neox
