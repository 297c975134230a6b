// The MLPs of experts against products of whole tensors in double.
#include "ops/experts.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "kernel_cases.h"

namespace neox {
namespace {

class Experts : public KernelTest {
 protected:
  struct Inputs {
    Tensor x, weights, in, out;
    std::vector<Tensor> all() const { return {x, weights, in, out}; }
  };
  Inputs inputs(int64_t M, int64_t k, int64_t E, int64_t H, int64_t I, bool gated) const {
    at::ScalarType wide = at::toOpMathType(GetParam().type);
    return {leaf({M, H}), on(at::rand({M, k}, wide)).set_requires_grad(true),
            leaf({E, gated ? 2 * I : I, H}, 0.3), leaf({E, H, I}, 0.3)};
  }
  static Inputs wanted(const Inputs& in) {
    return {reference(in.x), reference(in.weights), reference(in.in), reference(in.out)};
  }
  // Every expert computes every row.
  static Tensor slow(const Inputs& f, const Tensor& experts, bool gated) {
    std::vector<Tensor> results;
    for (int64_t e = 0; e < f.in.size(0); ++e) {
      Tensor y = at::matmul(f.x, f.in[e].t());
      if (gated) {
        Tensor pairs = y.view({y.size(0), -1, 2});
        y = at::silu(pairs.select(2, 0)) * pairs.select(2, 1);
      } else {
        y = at::gelu(y);
      }
      Tensor share = (f.weights * (experts == e)).sum(1, true);
      results.push_back(at::matmul(y, f.out[e].t()) * share);
    }
    return at::stack(results).sum(0);
  }
  Tensor fast(const Inputs& f, const Tensor& experts, bool gated) const {
    return expert_mlps(f.x, {on(experts), f.weights}, f.in, f.out,
                       gated ? Activation::kSilu : Activation::kGeluErf, gated);
  }
  void expect_equal(const Inputs& given, const Tensor& experts, bool gated) const {
    Inputs want = wanted(given);
    Tensor expected = slow(want, experts, gated), y = fast(given, experts, gated),
           dy = random(y.sizes());
    expect_close(y, expected, "result");
    expected.backward(reference(dy));
    y.backward(dy);
    expect_gradients(given.all(), want.all());
  }
};

TEST_P(Experts, EqualEveryExpertOnEveryRow) {
  for (bool gated : {false, true})
    for (auto [M, k, E] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 1, 3}, {7, 1, 2}, {40, 2, 5}, {300, 3, 4}}) {
      SCOPED_TRACE(testing::Message() << M << " rows, " << k << " of " << E);
      std::vector<Tensor> rows;
      for (int64_t i = 0; i < M; ++i) rows.push_back(at::randperm(E, at::kLong).narrow(0, 0, k));
      expect_equal(inputs(M, k, E, 24, 40, gated), at::stack(rows), gated);
    }
}

TEST_P(Experts, MayHaveNoRows) {
  Tensor experts = at::randint(2, {50, 1}, at::kLong) * 3;  // of six
  Inputs given = inputs(50, 1, 6, 16, 32, false);
  expect_equal(given, experts, false);
  EXPECT_EQ(given.in.grad()[1].abs().max().item<double>(), 0);
}

TEST_P(Experts, AddToTheGradientsThatAreKept) {
  Inputs given = inputs(60, 2, 4, 16, 32, false), want = wanted(given);
  Tensor experts = at::randint(2, {60, 1}, at::kLong);
  experts = at::cat({experts, experts + 2}, 1);
  for (Tensor* w : {&given.in, &given.out}) {
    w->set_grad_dtype(at::toOpMathType(GetParam().type));
    w->mutable_grad() = on(at::randn(w->sizes(), at::toOpMathType(GetParam().type)));
  }
  want.in.mutable_grad() = reference(given.in.grad());
  want.out.mutable_grad() = reference(given.out.grad());
  Tensor kept = given.in.grad(), dy = random({60, 16});
  slow(want, experts, false).backward(reference(dy));
  fast(given, experts, false).backward(dy);
  EXPECT_TRUE(given.in.grad().is_same(kept));
  expect_close(given.in.grad(), want.in.grad(), "in");
  expect_close(given.out.grad(), want.out.grad(), "out");
}

TEST_P(Experts, GiveTheSameBitsEachTime) {
  Tensor experts = at::randint(4, {200, 1}, at::kLong);
  experts = at::cat({experts, (experts + 1).remainder(4)}, 1);
  Inputs given = inputs(200, 2, 4, 64, 96, false);
  std::vector<Tensor> first;
  for (int time = 0; time < 3; ++time) {
    Tensor y = fast(given, experts, false);
    y.sum().backward();
    std::vector<Tensor> now = {y.detach()};
    for (const Tensor& f : given.all()) {
      now.push_back(f.grad().clone());
      f.mutable_grad().reset();
    }
    if (first.empty()) first = now;
    for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(now[i].equal(first[i])) << i;
  }
}

TEST_P(Experts, OfOtherRowsAreRefused) {
  Inputs given = inputs(4, 1, 2, 8, 8, false);
  EXPECT_THROW(fast(given, at::zeros({3, 1}, at::kLong), false), Error);
  EXPECT_THROW(fast(given, at::zeros({4, 2}, at::kLong), false), Error);
}

INSTANTIATE_TEST_SUITE_P(All, Experts, testing::ValuesIn(kKernelCases), kernel_case_name);

}  // namespace
}  // namespace neox
