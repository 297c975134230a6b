// The fused operations against ATen's in double: values and gradients, for each type, on the CPU
// and, where there is one, on a GPU. This file: softmax cross entropy.
#include "kernel_cases.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>

#include <limits>

#include "base/error.h"
#include "ops/column_sums.h"
#include "ops/cross_entropy.h"

namespace neox {
namespace {

class CrossEntropy : public KernelTest {
 protected:
  struct Inputs {
    Tensor logits, targets, factor;
  };
  Inputs inputs(int64_t N, int64_t V) const {
    auto wide = GetParam().type == at::kDouble ? at::kDouble : at::kFloat;
    return {random({N, V}, 3), on(at::randint(V, {N}, at::kLong)), on(at::rand({N}, wide))};
  }
  void expect_equal_to_aten(const Inputs& given) const {
    Inputs in = given;
    Tensor want = reference(in.logits).set_requires_grad(true);
    Tensor loss = at::cross_entropy_loss(want, in.targets.cpu(), {}, at::Reduction::None);
    loss.backward(in.factor.cpu().to(at::kDouble));
    Tensor before = in.logits.clone(), kept = cross_entropy_(in.logits, in.targets, {});
    EXPECT_TRUE(in.logits.equal(before));
    Tensor got = cross_entropy_(in.logits, in.targets, in.factor);
    EXPECT_TRUE(got.equal(kept));
    expect_close(got, loss, "loss");
    expect_close(in.logits, want.grad(), "gradient");
  }
};

TEST_P(CrossEntropy, EqualsAtensAndItsGradient) {
  for (int64_t V : {2, 15, 16, 17, 47, 64, 1000, 50304}) expect_equal_to_aten(inputs(5, V));
  expect_equal_to_aten(inputs(1, 6288));
}

TEST_P(CrossEntropy, TakesLogitsThatBeginAnywhere) {
  Inputs in = inputs(3, 1000);
  in.logits = shifted(in.logits);
  expect_equal_to_aten(in);
}

TEST_P(CrossEntropy, OfMinusInfinityIsAProbabilityOfZero) {
  for (int64_t V : {1000, 1001}) {
    Inputs in = inputs(3, V);
    in.logits.narrow(1, 0, 600).fill_(-std::numeric_limits<double>::infinity());
    in.targets.fill_(700);
    expect_equal_to_aten(in);
  }
}

TEST_P(CrossEntropy, OfTwoPartsOfAVocabularyIsThatOfTheWhole) {
  for (auto [V, split] : {std::pair{96, 64}, std::pair{101, 37}, std::pair{50304, 25152}}) {
    Inputs in = inputs(7, V);
    Tensor want = in.logits.clone(), loss = cross_entropy_(want, in.targets, in.factor);
    Tensor a = in.logits.narrow(1, 0, split).contiguous(),
           b = in.logits.narrow(1, split, V - split).contiguous();
    LogitTargets first{in.targets, 0}, second{in.targets, split};
    Tensor of_a = row_statistics(a, first), of_b = row_statistics(b, second);
    Tensor top = at::maximum(of_a[0], of_b[0]);
    Tensor sums = sums_below(top, of_a) + sums_below(top, of_b);
    gradients_(a, top, sums, first, in.factor);
    gradients_(b, top, sums, second, in.factor);
    expect_close(sums[0].log() - (sums[1] - top), loss.cpu(), "loss");
    expect_close(at::cat({a, b}, 1), want.cpu(), "gradient");
  }
}

TEST_P(CrossEntropy, OfLogitsFarBelowZeroEqualsAtens) {
  Inputs in = inputs(4, 200);
  in.logits.mul_(10).sub_(1000);
  expect_equal_to_aten(in);
}

TEST_P(CrossEntropy, StaysFiniteBeyondTheRangeOfExp) {
  Inputs in = inputs(4, 200);
  in.logits.mul_(2000).clamp_(-60000, 60000);
  Tensor loss = cross_entropy_(in.logits, in.targets, in.factor);
  EXPECT_TRUE(loss.isfinite().all().item<bool>());
  EXPECT_TRUE(in.logits.isfinite().all().item<bool>());
}

TEST_P(CrossEntropy, OfNotANumberIsNotANumber) {
  for (int64_t V : {50, 64, 4096}) {
    Inputs in = inputs(3, V);
    in.logits[1][20] = std::nan("");
    Tensor loss = cross_entropy_(in.logits, in.targets, in.factor).cpu();
    EXPECT_TRUE(loss.isnan().equal(at::full({3}, 0) ==
                                   at::stack({at::full({}, 1), at::full({}, 0), at::full({}, 1)})));
  }
}

TEST_P(CrossEntropy, RefusesStatisticsOfOtherRows) {
  Inputs in = inputs(4, 10);
  Tensor own = row_statistics(in.logits, {in.targets}), sums = own.narrow(0, 1, 2);
  EXPECT_THROW(row_statistics(in.logits, {in.targets.narrow(0, 0, 3)}), Error);
  EXPECT_THROW(gradients_(in.logits, own[0].narrow(0, 0, 3), sums, {in.targets}, in.factor), Error);
  EXPECT_THROW(gradients_(in.logits, own[0], sums[0], {in.targets}, in.factor), Error);
  EXPECT_THROW(cross_entropy_(in.logits, in.targets, in.factor.to(at::kLong)), Error);
}

INSTANTIATE_TEST_SUITE_P(All, CrossEntropy, testing::ValuesIn(kKernelCases), kernel_case_name);

class SumOfParts : public KernelTest {};

TEST_P(SumOfParts, IsThatOfAten) {
  auto wide = GetParam().type == at::kDouble ? at::kDouble : at::kFloat;
  for (int64_t columns : {1, 33, 1024, 5121})
    for (int64_t parts : {1, 7, 132}) {
      Tensor x = random({parts, columns}).to(wide);
      Tensor sum = sum_of_parts(x), narrow = sum_of_parts(x.view({parts, 1, columns}));
      EXPECT_EQ(narrow.sizes(), (at::IntArrayRef{1, columns}));
      EXPECT_TRUE(narrow[0].equal(sum));
      expect_close(sum, reference(x).sum(0), "sum");
    }
}

INSTANTIATE_TEST_SUITE_P(All, SumOfParts, testing::ValuesIn(kKernelCases), kernel_case_name);

}  // namespace
}  // namespace neox
