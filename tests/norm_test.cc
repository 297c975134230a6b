// Norms, activations and heads against ATen's formulas in double.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>

#include <cmath>

#include "base/error.h"
#include "kernel_cases.h"
#include "ops/activated_product.h"
#include "ops/activation.h"
#include "ops/norm.h"
#include "ops/rotary.h"

namespace neox {
namespace {

class Norms : public KernelTest {
 protected:
  static Tensor aten(const Tensor& x, const Tensor& w, const Tensor& b, NormOptions o) {
    if (o.kind == Norm::kLayerNorm) return at::layer_norm(x, w.sizes(), w, b, o.eps);
    Tensor y = at::rms_norm(x, w.sizes(), w, o.eps);
    return b.defined() ? y + b : y;
  }
  // x, added, bias, weight, bias, weight, bias.
  std::vector<Tensor> inputs(int64_t C, int64_t T = 50) const {
    std::vector<Tensor> in{leaf({3, T, C}, 2), leaf({3, T, C})};
    for (int i = 0; i < 5; ++i) in.push_back(leaf({C}));
    return in;
  }
  void expect_equal_to_aten(std::vector<Tensor> in, NormOptions o) const {
    std::vector<Tensor> want;
    for (const Tensor& t : in) want.push_back(reference(t));
    SumAndNorms got = add_norms({in[0], in[1], in[2]}, {in[3], in[4]}, {in[5], in[6]}, o);
    Tensor sum = want[0];
    if (want[1].defined()) sum = sum + want[1];
    if (want[2].defined()) sum = sum + want[2];
    Tensor first = aten(sum, want[3], want[4], o), total = got.first;
    expect_close(got.sum, sum, "sum");
    expect_close(got.first, first, "first norm");
    Tensor d = random(got.first.sizes()), d64 = reference(d), want_total = (first + sum) * d64;
    total = (got.first + got.sum) * d;
    if (want[5].defined()) {
      Tensor second = aten(sum, want[5], want[6], o), d2 = random(got.first.sizes());
      expect_close(got.second, second, "second norm");
      total = total + got.second * d2;
      want_total = want_total + second * reference(d2);
    }
    total.sum().backward();
    want_total.sum().backward();
    expect_gradients(in, want);
  }
};

TEST_P(Norms, EqualAtensAndItsGradients) {
  for (int64_t C : {5, 20, 64, 512, 1000, 2560})
    for (Norm kind : {Norm::kLayerNorm, Norm::kRmsNorm}) {
      SCOPED_TRACE(C);
      std::vector<Tensor> in = inputs(C);
      expect_equal_to_aten(in, {kind, 1e-5});
    }
}

TEST_P(Norms, OfTheWidthsOfModelsAndOfSingleTokens) {
  for (int64_t C : {128, 768, 4096, 5120, 8200, 12288}) {
    SCOPED_TRACE(C);
    expect_equal_to_aten(inputs(C, 1), {Norm::kLayerNorm, 1e-5});
  }
}

TEST_P(Norms, TakeInputsThatBeginAnywhere) {
  for (int64_t C : {64, 2056, 12288}) {
    SCOPED_TRACE(C);
    std::vector<Tensor> in = inputs(C, 7);
    for (Tensor& t : in) t = shifted(t);
    expect_equal_to_aten(in, {Norm::kLayerNorm, 1e-5});
  }
}

TEST_P(Norms, TakeAnyPartOfTheirInputs) {
  for (std::vector<size_t> left_out :
       {std::vector<size_t>{1, 2}, {2, 5, 6}, {1, 4, 5, 6}, {4, 6}}) {
    std::vector<Tensor> in = inputs(48);
    for (size_t i : left_out) in[i] = Tensor();
    for (Tensor& t : in)
      if (t.defined()) t = t.detach().clone().set_requires_grad(true);
    expect_equal_to_aten(in, {Norm::kLayerNorm, 1e-6});
  }
}

TEST_P(Norms, OfASumAreThoseOfTheRoundedSum) {
  std::vector<Tensor> in = inputs(96);
  SumAndNorms both = add_norms({in[0], in[1], in[2]}, {in[3], in[4]}, {in[5], in[6]}, {});
  EXPECT_TRUE(total({in[0], in[1], in[2]}).equal(both.sum));
  EXPECT_TRUE(both.sum.equal(in[0] + (in[1] + in[2])));
  EXPECT_TRUE(norm(both.sum, {in[3], in[4]}, {}).equal(both.first));
  EXPECT_TRUE(norm(both.sum, {in[5], in[6]}, {}).equal(both.second));
}

TEST_P(Norms, OfTwoBranchesAreThoseOfTheirRoundedSum) {
  for (int64_t C : {5, 96, 512}) {
    std::vector<Tensor> in = inputs(C);
    Tensor other = leaf(in[1].sizes());
    auto norms = [&](const ResidualSum& sum) {
      return add_norms(sum, {in[3], in[4]}, {in[5], in[6]}, {});
    };
    SumAndNorms want = norms({in[0], in[1] + other, in[2]});
    SumAndNorms got = norms({in[0], in[1], in[2], other});
    EXPECT_TRUE(got.sum.equal(want.sum));
    EXPECT_TRUE(got.first.equal(want.first));
    EXPECT_TRUE(got.second.equal(want.second));
    Tensor d = random(in[0].sizes());
    ((got.sum + got.first) * d).sum().backward();
    EXPECT_TRUE(other.grad().equal(in[1].grad()));
    EXPECT_TRUE(other.grad().equal(in[0].grad()));
  }
  Tensor x = random({3, 8});
  EXPECT_THROW(total({x, {}, {}, x}), Error);
}

TEST_P(Norms, OfNothingAddsAndSumsTheGradientOfTheBias) {
  std::vector<Tensor> in{leaf({3, 50, 40}), leaf({3, 50, 40}), leaf({40})}, want;
  for (const Tensor& t : in) want.push_back(reference(t));
  Tensor d = random({3, 50, 40});
  total({in[0], in[1], in[2]}).backward(d);
  (want[0] + want[1] + want[2]).backward(reference(d));
  expect_gradients(in, want);
}

TEST_P(Norms, GradientsAreTheSameBitsEachTime) {
  std::vector<Tensor> grads;
  Tensor x = random({4, 300, 40}), w = random({40}), d = random({4, 300, 40});
  for (int i = 0; i < 2; ++i) {
    Tensor weight = w.detach().clone().set_requires_grad(true);
    norm(x, {weight}, {}).backward(d);
    grads.push_back(weight.grad());
  }
  EXPECT_TRUE(grads[0].equal(grads[1]));
}

TEST_P(Norms, RefuseWeightsOfAnotherSize) {
  EXPECT_THROW(norm(random({4, 6}), {random({5})}, {}), Error);
  EXPECT_THROW(add_norms({random({4, 6}), random({4, 5})}, {random({6})}, {}, {}), Error);
}

class Activations : public KernelTest {
 protected:
  static Tensor aten(const Tensor& x, Activation a) {
    switch (a) {
      case Activation::kGeluErf:
        return at::gelu(x, "none");
      case Activation::kGeluTanh:
        return at::gelu(x, "tanh");
      case Activation::kRelu:
        return at::relu(x);
      case Activation::kSilu:
        return at::silu(x);
      case Activation::kSoftsign:
        return x / (x.abs() + 1);
      case Activation::kMish:
        return at::mish(x);
      case Activation::kSigmoid:
        return at::sigmoid(x);
      case Activation::kIdentity:
        break;
    }
    return x;
  }
  static std::vector<Activation> all() {
    std::vector<Activation> kinds;
    for (int a = 0; a <= static_cast<int>(Activation::kIdentity); ++a)
      kinds.push_back(static_cast<Activation>(a));
    return kinds;
  }
};

TEST_P(Activations, EqualAtensAndTheirGradients) {
  for (Activation a : all())
    for (int64_t F : {7, 32, 200})
      for (bool with_bias : {true, false}) {
        SCOPED_TRACE(static_cast<int>(a));
        std::vector<Tensor> in{leaf({2, 150, F}, 3), with_bias ? leaf({F}) : Tensor()};
        std::vector<Tensor> want{reference(in[0]), reference(in[1])};
        Tensor got = activated(in[0], in[1], a), d = random(in[0].sizes());
        Tensor y = aten(with_bias ? want[0] + want[1] : want[0], a);
        expect_close(got, y, "value");
        got.backward(d);
        y.backward(reference(d));
        expect_gradients(in, want);
      }
}

TEST_P(Activations, GatedOnesMultiplyByTheOtherHalf) {
  for (Activation a : all())
    for (int64_t F : {7, 32, 200}) {
      SCOPED_TRACE(static_cast<int>(a));
      std::vector<Tensor> in{leaf({2, 150, 2 * F}), leaf({2 * F})};
      std::vector<Tensor> want{reference(in[0]), reference(in[1])};
      Tensor got = gated(in[0], in[1], a), d = random(got.sizes());
      auto parts = (want[0] + want[1]).view({2, 150, F, 2}).unbind(3);
      Tensor y = aten(parts[0], a) * parts[1];
      expect_close(got, y, "value");
      got.backward(d);
      y.backward(reference(d));
      expect_gradients(in, want);
    }
}

TEST_P(Activations, TakeInputsThatBeginAnywhereAndSingleRows) {
  for (int64_t F : {32, 1030})
    for (int64_t rows : {1, 70}) {
      SCOPED_TRACE(F);
      Tensor x = random({rows, 2 * F}), b = random({2 * F}), d = random({rows, 2 * F});
      std::vector<Tensor> in{shifted(x).set_requires_grad(true),
                             shifted(b).set_requires_grad(true)};
      std::vector<Tensor> want{reference(in[0]), reference(in[1])};
      Tensor got = activated(in[0], in[1], Activation::kMish),
             pairs = gated(in[0], in[1], Activation::kSilu);
      Tensor sum = want[0] + want[1], parts = sum.view({rows, F, 2});
      Tensor y = at::mish(sum), y2 = at::silu(parts.select(2, 0)) * parts.select(2, 1);
      expect_close(got, y, "value");
      expect_close(pairs, y2, "gated value");
      Tensor d2 = random({rows, F});
      ((got * shifted(d)).sum() + (pairs * shifted(d2)).sum()).backward();
      ((y * reference(d)).sum() + (y2 * reference(d2)).sum()).backward();
      expect_gradients(in, want);
    }
}

// Gradients that go to a kept buffer and those that are returned.
TEST_P(Activations, BeforeAProductKeepTheirInputAlone) {
  for (bool is_gated : {false, true})
    for (bool kept : {false, true}) {
      SCOPED_TRACE(is_gated);
      std::vector<Tensor> in{leaf({2, 150, 64}), leaf({64}), leaf({24, is_gated ? 32 : 64})};
      std::vector<Tensor> want{reference(in[0]), reference(in[1]), reference(in[2])};
      if (kept) in[2].mutable_grad() = at::zeros_like(in[2]);
      Tensor got = activated_product(in[0], in[1], Activation::kGeluTanh, is_gated, in[2]);
      auto of_reference = is_gated ? gated : activated;
      Tensor y = at::linear(of_reference(want[0], want[1], Activation::kGeluTanh), want[2]);
      Tensor d = random(got.sizes());
      expect_close(got, y, "value");
      got.backward(d);
      y.backward(reference(d));
      expect_gradients(in, want);
    }
}

TEST_P(Activations, OfLargeValuesStayFinite) {
  for (Activation a : all()) {
    Tensor x = on(at::stack({at::full({40}, -3000.0), at::full({40}, 3000.0)}).to(GetParam().type));
    x.set_requires_grad(true);
    Tensor y = activated(x, {}, a);
    y.sum().backward();
    EXPECT_TRUE(y.isfinite().all().item<bool>()) << static_cast<int>(a);
    EXPECT_TRUE(x.grad().isfinite().all().item<bool>()) << static_cast<int>(a);
  }
}

// Of either sign.
TEST_P(Activations, OfNaNAreNaN) {
  Tensor x = at::full({2, 40}, std::nan(""), at::kDouble);
  x[1].copysign_(-1.0);
  for (Activation a : all())
    EXPECT_TRUE(activated(on(x.to(GetParam().type)), {}, a).isnan().all().item<bool>())
        << static_cast<int>(a);
}

class RotatedHeads : public KernelTest {
 protected:
  // x cos + rotate_half(x) sin, as transformers writes it, of heads [B, T, H, D].
  static Tensor turned(const Tensor& x, const RotaryTable& rows) {
    int64_t T = x.size(1), half = rows.cos.size(1), D = x.size(3);
    auto all = [&](const Tensor& t) {
      Tensor wide = t.cpu().to(at::kDouble).view({t.size(0) / T, T, 1, half});
      return at::cat({wide, wide}, 3);
    };
    Tensor y = x.narrow(3, 0, 2 * half);
    Tensor other = at::cat({-y.narrow(3, half, half), y.narrow(3, 0, half)}, 3);
    return at::cat({y * all(rows.cos) + other * all(rows.sin), x.narrow(3, 2 * half, D - 2 * half)},
                   3);
  }
  // The heads of x + bias, each [B, T, n, D].
  void expect_equal_to_aten(HeadGroups heads, int64_t D, const RotaryTable& rows) const {
    int64_t B = 2, T = 70, K = heads.groups, G = heads.queries, width = K * (G + 2) * D;
    std::vector<Tensor> in{leaf({B, T, width}), leaf({width})};
    std::vector<Tensor> want{reference(in[0]), reference(in[1])};
    Heads got = rotated_heads_(in[0] + in[1].detach(), heads, rows, in[1]);
    auto parts = (want[0] + want[1]).view({B, T, K, G + 2, D}).split_with_sizes({G, 1, 1}, 3);
    std::vector<Tensor> y{turned(parts[0].reshape({B, T, K * G, D}), rows),
                          turned(parts[1].reshape({B, T, K, D}), rows),
                          parts[2].reshape({B, T, K, D})};
    Tensor total, want_total;
    for (size_t i = 0; i < 3; ++i) {
      const Tensor& mine = i == 0 ? got.q : i == 1 ? got.k : got.v;
      expect_close(mine.transpose(1, 2), y[i], "heads");
      Tensor d = random(mine.sizes()), part = (mine * d).sum(),
             want_part = (y[i].transpose(1, 2) * reference(d)).sum();
      total = total.defined() ? total + part : part;
      want_total = want_total.defined() ? want_total + want_part : want_part;
    }
    total.backward();
    want_total.backward();
    expect_gradients(in, want);
  }
};

TEST_P(RotatedHeads, EqualTheFormulaAndItsGradients) {
  for (HeadGroups heads : {HeadGroups{3, 1}, HeadGroups{2, 4}})
    for (int64_t D : {14, 64})
      for (int64_t rotary : {int64_t{0}, D / 2 / 2 * 2, D}) {
        RotaryTable table = rotary_table(80, {.rotary = rotary}, GetParam().device);
        expect_equal_to_aten(heads, D, rows_from(table, 9, 70));
      }
}

TEST_P(RotatedHeads, OfTheSizesOfModels) {
  for (int64_t D : {32, 64, 80, 128, 256})
    for (int64_t rotary : {D / 4, D}) {
      SCOPED_TRACE(D);
      RotaryTable table = rotary_table(70, {.rotary = rotary}, GetParam().device);
      expect_equal_to_aten({2, 1}, D, table);
    }
}

TEST_P(RotatedHeads, WithoutGradientsOfSomeAreZerosThere) {
  RotaryTable table = rotary_table(5, {.rotary = 8}, GetParam().device);
  Tensor x = leaf({1, 5, 3, 16}), d = random({1, 1, 5, 16});
  Heads heads = rotated_heads_(x.clone(), {1}, table);
  heads.v.backward(d);
  Tensor parts = x.grad().view({5, 3, 16});
  EXPECT_TRUE(parts.narrow(1, 0, 2).eq(0).all().item<bool>());
  EXPECT_TRUE(parts.select(1, 2).equal(d.view({5, 16})));
}

TEST_P(RotatedHeads, TakePositionsOfEachToken) {
  RotaryTable table = rotary_table(80, {.rotary = 8}, GetParam().device);
  Tensor positions = on(at::arange(139, -1, -1, at::kLong).remainder(80).view({2, 70}));
  expect_equal_to_aten({3, 1}, 16, rows_at(table, positions));
}

INSTANTIATE_TEST_SUITE_P(All, Norms, testing::ValuesIn(kKernelCases), kernel_case_name);
INSTANTIATE_TEST_SUITE_P(All, Activations, testing::ValuesIn(kKernelCases), kernel_case_name);
INSTANTIATE_TEST_SUITE_P(All, RotatedHeads, testing::ValuesIn(kKernelCases), kernel_case_name);

}  // namespace
}  // namespace neox
