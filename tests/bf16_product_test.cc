// Products and attention of bf16 by the kernels of this processor, against double.
#include "ops/bf16_product.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/bf16_attention.h"
#include "ops/head_parts.h"
#include "ops/product.h"
#include "score_rules.h"

namespace neox {
namespace {

using at::Tensor;

// Of each kind that this processor can run.
class Bf16Product : public testing::TestWithParam<const Bf16Kernels*> {
 protected:
  void SetUp() override {
    std::swap(bf16_kernels(), kernels_);
    at::manual_seed(1);
  }
  void TearDown() override { std::swap(bf16_kernels(), kernels_); }
  // Of sums in float, or, a third of what rounding factors to bf16 does, of sums in fp16.
  double error() const { return GetParam()->in_float ? 1e-3 : 1e-6; }

 private:
  const Bf16Kernels* kernels_ = GetParam();
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bf16Product);
INSTANTIATE_TEST_SUITE_P(Kernels, Bf16Product, testing::ValuesIn(all_bf16_kernels()),
                         [](const auto& kernels) {
                           std::string name = kernels.param->name;
                           std::erase(name, '-');
                           return name;
                         });

double relative(const Tensor& a, const Tensor& b) {
  return ((a.to(at::kDouble) - b).norm() / b.norm()).item<double>();
}

Tensor random(int64_t rows, int64_t columns, bool transposed) {
  Tensor x = transposed ? at::randn({columns, rows}).t() : at::randn({rows, columns});
  return x.to(at::kBFloat16);
}

// Rows and columns beside whole tiles and packed blocks, odd depths, operands of either order.
const std::vector<std::array<int64_t, 3>> kShapes = {
    {1, 1, 1},    {8, 32, 2},       {7, 31, 33},       {9, 49, 64},
    {130, 80, 7}, {260, 300, 1030}, {40, 5000, 900},   {300, 70, 128},
    {33, 47, 96}, {33, 47, 6201},   {1300, 2200, 1031}};

TEST_P(Bf16Product, EqualsDoubleForAllShapesAndOrders) {
  for (auto [M, N, K] : kShapes)
    for (int order = 0; order < 4; ++order) {
      Tensor a = random(M, K, order & 1), b = random(N, K, order & 2), bias = at::randn({N});
      Tensor want = at::mm(a.to(at::kDouble), b.to(at::kDouble).t());
      Tensor y = at::full({M, N + 3}, 7.0).narrow(1, 1, N);
      bf16_product_out(y, a, b);
      EXPECT_LE(relative(y, want), error()) << M << " " << N << " " << K << " " << order;
      add_bf16_product(y, a, b);
      EXPECT_LE(relative(y, want * 2), error()) << M << " " << N << " " << K << " " << order;
      bf16_product_out(y, a, b, bias);
      EXPECT_LE(relative(y, want + bias), error()) << M << " " << N << " " << K << " " << order;
      add_bf16_product(y, a, b, bias);
      EXPECT_LE(relative(y, 2 * (want + bias)), error())
          << M << " " << N << " " << K << " " << order;
      Tensor half = at::empty({M, N}, at::kBFloat16);
      bf16_product_out(half, a, b);
      EXPECT_LE(relative(half, want), 4e-3) << M << " " << N << " " << K << " " << order;
    }
}

TEST_P(Bf16Product, MultipliesByAFactorThatWasPacked) {
  for (auto [M, N, K] : kShapes)
    for (int order = 0; order < 4; ++order) {
      Tensor a = random(M, K, order & 1), b = random(N, K, order & 2);
      Tensor want = at::mm(a.to(at::kDouble), b.to(at::kDouble).t());
      PackedFactor factor(b);
      Tensor y = at::full({M, N}, 7.0);
      for (int64_t from : {int64_t{0}, M / 2})  // one part of the rows behind the other
        factor.product_out(y.narrow(0, from, M - from), a.narrow(0, from, M - from));
      EXPECT_LE(relative(y, want), error()) << M << " " << N << " " << K << " " << order;
    }
}

TEST_P(Bf16Product, MultipliesFewRowsThatWerePackedByPartsOfAMatrix) {
  bool taken = false;
  for (auto [M, N, K] : kShapes) {
    Tensor x = random(M, K, false), w = random(N, K, false), bias = at::randn({N});
    if (!FewRows::take(x, w)) continue;
    taken = true;
    FewRows rows(x);
    Tensor y = at::full({M, N + 2}, 7.0), whole = at::empty({M, N});
    for (int64_t from : {int64_t{0}, N / 2}) {
      int64_t n = from ? N - from : N / 2;
      rows.product_out(y.narrow(1, 1 + from, n), w.narrow(0, from, n), bias.narrow(0, from, n));
    }
    bf16_product_out(whole, x, w, bias);
    EXPECT_TRUE(y.narrow(1, 1, N).equal(whole)) << M << " " << N << " " << K;
    EXPECT_TRUE(y.select(1, 0).eq(7).all().item<bool>());
    EXPECT_TRUE(y.select(1, N + 1).eq(7).all().item<bool>());
    rows.product_out(y.narrow(1, 1, N), w, {});
    EXPECT_LE(relative(y.narrow(1, 1, N), at::mm(x.to(at::kDouble), w.to(at::kDouble).t())),
              error());
  }
  EXPECT_EQ(taken, GetParam()->few_rows > 0);
}

TEST_P(Bf16Product, LeavesWhatIsBesideItsResult) {
  Tensor all = at::full({10, 40}, 7.0);
  bf16_product_out(all.narrow(1, 1, 37).narrow(0, 0, 9), random(9, 5, false), random(37, 5, false));
  EXPECT_TRUE(all.select(1, 0).eq(7).all().item<bool>());
  EXPECT_TRUE(all.narrow(1, 38, 2).eq(7).all().item<bool>());
  EXPECT_TRUE(all[9].eq(7).all().item<bool>());
}

TEST_P(Bf16Product, HasTheSameBitsOnAnyNumberOfThreads) {
  int threads = at::get_num_threads();
  for (auto [M, N, K] : kShapes) {
    Tensor a = random(M, K, false), b = random(N, K, true), y[2];
    for (int i : {0, 1}) {
      at::set_num_threads(i + 1);
      bf16_product_out(y[i] = at::empty({M, N}), a, b);
    }
    EXPECT_TRUE(y[0].equal(y[1])) << M << " " << N << " " << K;
  }
  at::set_num_threads(threads);
}

// By packed rows or as they lie, in whole tiles or not: what a row becomes is the same.
TEST_P(Bf16Product, ARowHasTheSameBitsInAnyCompany) {
  for (int64_t K : {64, 576, 1090}) {
    constexpr int64_t kRows = 1100, N = 70;
    Tensor a = random(kRows, K, false), b = random(N, K, false), bias = at::randn({N});
    auto products = [&](int64_t m) {
      Tensor y = at::ones({4, m, N}), rows = a.narrow(0, 0, m);
      for (int64_t i : {0, 1}) {
        bf16_product_out(y[i], rows, b, i ? bias : Tensor());
        add_bf16_product(y[i + 2], rows, b, i ? bias : Tensor());
      }
      return y;
    };
    Tensor all = products(kRows);
    for (int64_t m : {1, 17, 100, 256, 300, 1024})
      EXPECT_TRUE(products(m).equal(all.narrow(1, 0, m))) << m << " " << K;
  }
}

// Rows and columns that differ by powers of 2, with zeros and numbers of the least exponents.
TEST_P(Bf16Product, KeepsTheDigitsOfEachRowAndColumn) {
  constexpr int64_t M = 40, N = 70, K = 200;
  for (int order = 0; order < 4; ++order) {
    Tensor a = random(M, K, order & 1), b = random(N, K, order & 2);
    Tensor rows = at::arange(-60, 60, 3, at::kDouble).exp2().unsqueeze(1),
           columns = at::arange(0, N, at::kDouble).sub(35).exp2().unsqueeze(1);
    a = a * rows.to(at::kBFloat16), b = b * columns.to(at::kBFloat16);
    a[7].zero_(), b[3].zero_();
    a.select(1, 5).mul_(1e-9);  // beside the others of a row
    Tensor want = at::mm(a.to(at::kDouble), b.to(at::kDouble).t()), y = at::empty({M, N});
    bf16_product_out(y, a, b);
    Tensor scale = rows * columns.t();
    EXPECT_LE(relative(y.to(at::kDouble) / scale, want / scale), error()) << order;
    EXPECT_TRUE(y[7].eq(0).all().item<bool>());
    EXPECT_TRUE(y.select(1, 3).eq(0).all().item<bool>());
    Tensor least = at::full({1, K}, 0x1p-126).to(at::kBFloat16);
    Tensor most = at::full({1, K}, 0x1p120).to(at::kBFloat16), one = at::empty({1, 1});
    bf16_product_out(one, least, most);
    EXPECT_NEAR(one.item<double>(), K * 0x1p-6, K * 0x1p-6 * error());
  }
}

TEST_P(Bf16Product, HasInfinityAndNaNWhereFactorsHave) {
  constexpr int64_t M = 20, N = 70, K = 90;
  for (int order = 0; order < 4; ++order) {
    Tensor a = random(M, K, order & 1).abs() + 1, b = random(N, K, order & 2).abs() + 1;
    a[2][80] = INFINITY, a[3][1] = std::nan(""), b[66][5] = -INFINITY, b[1][89] = std::nan("");
    Tensor want = at::mm(a.to(at::kDouble), b.to(at::kDouble).t()), y = at::empty({M, N});
    bf16_product_out(y, a, b);
    EXPECT_TRUE(y.isnan().equal(want.isnan())) << order;
    EXPECT_TRUE(y.isposinf().equal(want.isposinf())) << order;
    EXPECT_TRUE(y.isneginf().equal(want.isneginf())) << order;
  }
}

TEST_P(Bf16Product, TrainsAParameterWithAnFp32Gradient) {
  Tensor values = at::randn({96, 48}).to(at::kBFloat16), w = values.clone().set_requires_grad(true);
  w.set_grad_dtype(at::kFloat);
  w.mutable_grad() = at::full({96, 48}, 0.5);
  Tensor kept = w.grad(), x = at::randn({3, 100, 48}).to(at::kBFloat16).set_requires_grad(true);
  Tensor dy = at::randn({3, 100, 96}).to(at::kBFloat16);
  product(x, w).backward(dy);
  Tensor rows = dy.view({300, 96}).to(at::kDouble);
  EXPECT_TRUE(w.grad().is_same(kept));
  EXPECT_LE(relative(kept - 0.5, at::mm(rows.t(), x.detach().view({300, 48}).to(at::kDouble))),
            error());
  EXPECT_LE(relative(x.grad().view({300, 48}), at::mm(rows, values.to(at::kDouble))), 4e-3);
}

TEST_P(Bf16Product, TrainsAParameterWithAGradientOf16Bits) {
  Tensor w = at::randn({96, 48}).to(at::kBFloat16).set_requires_grad(true);
  w.set_grad_dtype(at::kBFloat16);
  w.mutable_grad() = at::zeros({96, 48}, at::kBFloat16);
  Tensor kept = w.grad(), want = at::zeros({96, 48}, at::kDouble);
  for (int pass = 0; pass < 3; ++pass) {
    Tensor x = at::randn({100, 48}).to(at::kBFloat16), dy = at::randn({100, 96}).to(at::kBFloat16);
    product(x, w).backward(dy);
    want += at::mm(dy.to(at::kDouble).t(), x.to(at::kDouble));
  }
  EXPECT_TRUE(w.grad().is_same(kept));
  EXPECT_LE(relative(kept.to(at::kDouble), want), 4e-3);
}

// Queries, keys and values as they lie in a fused product, [B, T, H, {q, k, v}, D], and the
// gradients of a sum that tells positions and dimensions apart.
struct Attended {
  Tensor qkv, out;
  template <class F>
  Attended(const Tensor& values, F attend) : qkv(values.detach().clone().set_requires_grad(true)) {
    auto part = [&](int64_t i) { return qkv.select(3, i).transpose(1, 2); };
    out = attend(part(0), part(1), part(2));
    Tensor factor = at::ones_like(out, at::kDouble).cumsum(2).cos() +
                    at::ones_like(out, at::kDouble).cumsum(3).sin();
    (out * factor.to(out.scalar_type())).sum().backward();
  }
};

constexpr double kScale = 0.2;  // of scores

Tensor by_aten(const Tensor& q, const Tensor& k, const Tensor& v) {
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true, kScale);
}

Tensor by_blocks(const Tensor& q, const Tensor& k, const Tensor& v) {
  return bf16_causal_attention(q, k, v, {kScale});
}

TEST_P(Bf16Product, AttendsAsDoubleDoes) {
  for (int64_t T : {1, 2, 37, 128, 131, 600, 1100})
    for (int64_t D : {16, 64, 80, 7}) {
      Tensor values = (at::randn({2, T, 3, 3, D}) * 2).to(at::kBFloat16);
      Attended got(values, by_blocks), want(values.to(at::kDouble), by_aten);
      EXPECT_LE(relative(got.out, want.out), 5e-3) << T << " " << D;
      // The gradients of one position alone: queries have none but for rounding.
      double far = T > 1 ? relative(got.qkv.grad(), want.qkv.grad()) : 0;
      EXPECT_LE(far, 1.2e-2) << T << " " << D;
    }
}

TEST_P(Bf16Product, CountsDistancesAsAMaskDoes) {
  for (int64_t T : {1, 37, 131, 600, 1100})
    for (const ScoreRule& rule : score_rules(kScale)) {
      Tensor values = (at::randn({2, T, 3, 3, 16}) * 2).to(at::kBFloat16);
      auto with = [&](auto attend) {
        return [=](const Tensor& q, const Tensor& k, const Tensor& v) {
          return attend(q, k, v, rule);
        };
      };
      Attended got(values, with(bf16_causal_attention)),
          want(values.to(at::kDouble), with(attention_with_mask));
      EXPECT_LE(relative(got.out, want.out), 5e-3) << T << ", " << text_of(rule);
      double far = T > 1 ? relative(got.qkv.grad(), want.qkv.grad()) : 0;
      EXPECT_LE(far, 1.2e-2) << T << ", " << text_of(rule);
    }
}

// What sees a key that is NaN is NaN, and nothing else.
TEST_P(Bf16Product, AttendsToNaN) {
  constexpr int64_t kLost = 130;
  Tensor values = at::randn({1, 300, 2, 3, 32}).to(at::kBFloat16);
  values[0][kLost].select(1, 1).fill_(std::nan(""));
  Attended got(values, by_blocks);
  EXPECT_TRUE(got.out.narrow(2, 0, kLost).isfinite().all().item<bool>());
  EXPECT_TRUE(got.out.narrow(2, kLost, 300 - kLost).isnan().all().item<bool>());
  EXPECT_TRUE(got.qkv.grad()[0].narrow(0, kLost, 300 - kLost).isnan().all().item<bool>());
}

// Where one key has nearly all the weight, gradients are small differences; ATen rounds them too.
TEST_P(Bf16Product, AttendsWithScoresFarApart) {
  Tensor values = at::randn({1, 300, 2, 3, 32}) * 2;
  values.select(3, 0).mul_(100);
  values = values.to(at::kBFloat16);
  Attended got(values, by_blocks), want(values.to(at::kDouble), by_aten), aten(values, by_aten);
  EXPECT_LE(relative(got.out, want.out), 5e-3);
  EXPECT_LE(relative(got.qkv.grad(), want.qkv.grad()),
            1.5 * relative(aten.qkv.grad(), want.qkv.grad()));
}

TEST_P(Bf16Product, AttendsInAWindowWithTheSameBitsOnAnyNumberOfThreads) {
  int threads = at::get_num_threads();
  auto by_window = [](const Tensor& q, const Tensor& k, const Tensor& v) {
    return bf16_causal_attention(q, k, v, {kScale, 150, {0.5, 0.25, 0.125, 0.01, 0}});
  };
  Tensor values = at::randn({1, 1100, 5, 3, 32}).to(at::kBFloat16);
  at::set_num_threads(1);
  Attended one(values, by_window);
  for (int many : {2, 8, 64}) {
    at::set_num_threads(many);
    Attended other(values, by_window);
    EXPECT_TRUE(one.out.equal(other.out)) << many;
    EXPECT_TRUE(one.qkv.grad().equal(other.qkv.grad())) << many;
  }
  at::set_num_threads(threads);
}

TEST_P(Bf16Product, AttendsWithTheSameBitsOnAnyNumberOfThreads) {
  int threads = at::get_num_threads();
  for (int64_t T : {1, 100, 300, 1100}) {
    Tensor values = at::randn({1, T, 5, 3, 32}).to(at::kBFloat16);
    at::set_num_threads(1);
    Attended one(values, by_blocks);
    for (int many : {2, 8, 64}) {
      at::set_num_threads(many);
      EXPECT_EQ(parts_of_head(5, 1100, 1.4) > 1, many > 5);
      Attended other(values, by_blocks);
      EXPECT_TRUE(one.out.equal(other.out)) << T << " on " << many;
      EXPECT_TRUE(one.qkv.grad().equal(other.qkv.grad())) << T << " on " << many;
    }
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace neox
