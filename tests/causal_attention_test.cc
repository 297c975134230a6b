// Attention block by block against ATen's in double; gradients that go straight to their buffers;
// where tensors lie.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ops/causal_attention.h"
#include "ops/cpu_arena.h"
#include "ops/embedding.h"
#include "ops/head_parts.h"
#include "ops/product.h"
#include "ops/softmax_rows.h"
#include "score_rules.h"

namespace neox {
namespace {

using at::Tensor;

double relative_distance(const Tensor& a, const Tensor& b) {
  return ((a.to(at::kDouble) - b).norm() / b.norm()).item<double>();
}

// Queries, keys and values as they lie in a fused product: [B, T, H, {q, k, v}, D].
struct Attended {
  Tensor qkv, out;
  template <class F>
  Attended(const Tensor& values, at::ScalarType type, F attend)
      : qkv(values.to(type).set_requires_grad(true)) {
    auto part = [&](int64_t i) { return qkv.select(3, i).transpose(1, 2); };
    out = attend(part(0), part(1), part(2));
    (out * at::ones({1}, out.options()).expand_as(out).cumsum(2).cos()).sum().backward();
  }
};

constexpr double kScale = 0.2;  // of scores

Tensor by_aten(const Tensor& q, const Tensor& k, const Tensor& v) {
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true, kScale);
}

Tensor by_blocks(const Tensor& q, const Tensor& k, const Tensor& v) {
  return causal_attention(q, k, v, {kScale});
}

TEST(CausalAttention, EqualsAtensInDoubleForwardAndBackward) {
  // One query, less than a block, several blocks of queries and of keys, none of them full.
  for (int64_t T : {1, 37, 128, 1100})
    for (int64_t D : {16, 80}) {
      Tensor values = at::randn({2, T, 3, 3, D}, at::kDouble) * 2;
      Attended got(values, at::kFloat, by_blocks), want(values, at::kDouble, by_aten);
      // Processors sum in different orders: 2.2e-6 on one without AVX-512.
      EXPECT_LE(relative_distance(got.out, want.out), 3e-6) << T << " " << D;
      EXPECT_LE(relative_distance(got.qkv.grad(), want.qkv.grad()), 3e-6) << T << " " << D;
    }
}

TEST(CausalAttention, CountsDistancesAsAMaskDoes) {
  for (int64_t T : {1, 37, 300, 1100})
    for (const ScoreRule& rule : score_rules(kScale)) {
      Tensor values = at::randn({2, T, 3, 3, 16}, at::kDouble) * 2;
      auto with = [&](auto attend) {
        return [=](const Tensor& q, const Tensor& k, const Tensor& v) {
          return attend(q, k, v, rule);
        };
      };
      Attended got(values, at::kFloat, with(causal_attention)),
          want(values, at::kDouble, with(attention_with_mask));
      EXPECT_LE(relative_distance(got.out, want.out), 3e-6) << T << ", " << text_of(rule);
      EXPECT_LE(relative_distance(got.qkv.grad(), want.qkv.grad()), 3e-6)
          << T << ", " << text_of(rule);
    }
}

TEST(CausalAttention, HasTheSameBitsOnAnyNumberOfThreads) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && !std::getenv("MKL_CBWR"))
    GTEST_SKIP() << "MKL's kernels for AVX-512 do with MKL_CBWR=AVX512,STRICT alone";
#endif
  int threads = at::get_num_threads();
  for (int64_t T : {1, 300, 1100}) {
    Tensor values = at::randn({1, T, 5, 3, 32}, at::kDouble);
    at::set_num_threads(1);
    Attended one(values, at::kFloat, by_blocks);
    for (int many : {2, 8, 64}) {
      at::set_num_threads(many);
      EXPECT_EQ(parts_of_head(5, 1100, 1.4) > 1, many > 5);
      Attended other(values, at::kFloat, by_blocks);
      EXPECT_TRUE(one.out.equal(other.out)) << T << " on " << many;
      EXPECT_TRUE(one.qkv.grad().equal(other.qkv.grad())) << T << " on " << many;
    }
  }
  at::set_num_threads(threads);
}

TEST(CausalAttention, StaysFiniteWithScoresBeyondTheRangeOfExp) {
  Attended got(at::randn({1, 200, 2, 3, 16}, at::kDouble) * 300, at::kFloat, by_blocks);
  EXPECT_TRUE(got.out.isfinite().all().item<bool>());
  EXPECT_TRUE(got.qkv.grad().isfinite().all().item<bool>());
}

TEST(SoftmaxRows, WhatIsNothingBesideTheSumIsZero) {
  std::vector<float> x(100, -45), dx(100, 1);
  x[3] = -43;
  float sum = row_exp(x.data(), 100, 1, 0);
  EXPECT_FLOAT_EQ(sum, std::exp(-43.0F));
  EXPECT_EQ(std::count(x.begin(), x.end(), 0), 99);
  x = std::vector<float>(100, -45);
  row_exp_backward(x.data(), dx.data(), 100, 1, 0, 0);
  EXPECT_EQ(std::count(dx.begin(), dx.end(), 0), 100);
}

TEST(Product, AddsTheGradientOfAWeightToTheBufferThatIsKeptForIt) {
  for (at::ScalarType type : {at::kDouble, at::kFloat}) {
    Tensor x = at::randn({3, 4}, type), w = at::randn({5, 4}, type).set_requires_grad(true);
    Tensor buffer = at::full({5, 4}, 7.0, type);
    w.mutable_grad() = buffer;
    product(x, w).sum().backward();
    Tensor want = at::full({5, 4}, 7.0, at::kDouble) + x.to(at::kDouble).sum(0);
    EXPECT_LE(relative_distance(buffer, want), 1e-6);
    EXPECT_TRUE(w.grad().is_same(buffer));
  }
}

TEST(Embedding, AddsTheGradientsOfItsRowsToTheBufferThatIsKept) {
  Tensor w = at::randn({5, 3}).set_requires_grad(true), buffer = at::full({5, 3}, 7.0, at::kFloat);
  w.mutable_grad() = buffer;
  Tensor rows = at::tensor({4, 1, 4}, at::kLong);
  Tensor x = embedding_rows(w, rows.view({1, 3}));
  EXPECT_TRUE(x.detach().equal(w.detach().index_select(0, rows).view({1, 3, 3})));
  (x * 2).sum().backward();
  Tensor counts = at::tensor({0, 1, 0, 0, 2}, at::kFloat).unsqueeze(1);
  EXPECT_TRUE(buffer.equal((7 + 2 * counts).expand({5, 3})));
}

TEST(CpuArena, TakesFreedMemoryAgain) {
  use_cpu_arena();
  Tensor one = at::ones({3 << 20}), two = at::full({1 << 20}, 2.0, at::kFloat);
  EXPECT_EQ(one.sum().item<double>(), 3 << 20);
  const void* place = two.const_data_ptr();
  two.reset();
  EXPECT_EQ(at::ones({1 << 20}).const_data_ptr(), place);
}

// Whose pages come into being one by one, if the memory is new; else they are written.
TEST(CpuArena, GivesZerosThatAreNotWrittenBefore) {
  use_cpu_arena();
  constexpr int64_t kBytes = 64 << 20, kPage = 4096;
  Tensor x = untouched_zeros(kBytes, at::kByte);
  char* first = static_cast<char*>(x.mutable_data_ptr());
  std::vector<unsigned char> resident(kBytes / kPage);
  ASSERT_EQ(::mincore(first, kBytes, resident.data()), 0);
  EXPECT_LE(std::ranges::count(resident, 1), kBytes / kPage / 2);  // by other tests
  EXPECT_FALSE(x.any().item<bool>());
  x.fill_(1);
  x.reset();
  x = untouched_zeros(kBytes, at::kByte);
  EXPECT_EQ(x.const_data_ptr(), first);
  EXPECT_FALSE(x.any().item<bool>());
}

// As some kernels of ATen do.
TEST(CpuArena, GivesMemoryWithoutATensor) {
  use_cpu_arena();
  c10::Allocator* allocator = c10::GetAllocator(c10::DeviceType::CPU);
  for (size_t bytes : {100, 1 << 20}) {
    void* memory = allocator->raw_allocate(bytes);
    std::memset(memory, 1, bytes);
    allocator->raw_deallocate(memory);
  }
  void* first = allocator->raw_allocate(1 << 20);
  allocator->raw_deallocate(first);
  void* again = allocator->raw_allocate(1 << 20);
  EXPECT_EQ(again, first);
  allocator->raw_deallocate(again);
}

}  // namespace
}  // namespace neox
