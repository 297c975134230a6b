// Attention with dropout, block by block, against all probabilities at once.
#include "ops/dropped_attention.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/softmax.h>

#include <limits>

#include "kernel_cases.h"

namespace neox {
namespace {

struct Shape {
  int64_t B, H, T, D;
};

constexpr double kHidden = -std::numeric_limits<double>::infinity();

Tensor future(int64_t T) { return at::ones({T, T}, at::kBool).triu(1); }

class DroppedAttentions : public KernelTest {
 protected:
  ProbabilityDropout dropout_at(double p, at::Device device) const {
    return {p,
            {.key = 5, .first_sample = at::scalar_tensor(3, at::kLong).to(device), .offset = 28}};
  }
  static Tensor dense(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                      const ProbabilityDropout& d) {
    Tensor scores = at::matmul(q * 0.3, k.transpose(2, 3));
    scores = mask.defined() ? scores + mask : scores.masked_fill(future(q.size(2)), kHidden);
    return at::matmul(dropout(at::softmax(scores, -1), d.p, d.site), v);
  }
  // mask: of that many samples and heads; 0: none.
  void expect_dense(const Shape& s, double p, int64_t samples = 0, int64_t heads = 0) {
    std::vector<Tensor> in, want;
    for (int i = 0; i < 3; ++i) in.push_back(leaf({s.B, s.H, s.T, s.D}));
    if (samples > 0) {
      Tensor mask = random({samples, heads, s.T, s.T});
      in.push_back(mask.masked_fill(on(future(s.T)), kHidden).set_requires_grad(true));
    }
    for (const Tensor& x : in) want.push_back(reference(x));
    Tensor none, d = random({s.B, s.H, s.T, s.D});
    Tensor got = dropped_attention(in[0], in[1], in[2], samples ? in[3] : none, 0.3,
                                   dropout_at(p, in[0].device()));
    Tensor y = dense(want[0], want[1], want[2], samples ? want[3] : none, dropout_at(p, at::kCPU));
    expect_close(got, y, "value");
    got.backward(d);
    y.backward(reference(d));
    expect_gradients(in, want);
  }
};

TEST_P(DroppedAttentions, AreThoseOfAllProbabilities) { expect_dense({2, 3, 37, 8}, 0.3); }

TEST_P(DroppedAttentions, MayDropNothing) { expect_dense({2, 3, 20, 8}, 0); }

TEST_P(DroppedAttentions, TakeMasksAndGiveTheirGradients) {
  expect_dense({2, 3, 20, 8}, 0.3, 1, 3);
  expect_dense({2, 3, 20, 8}, 0.3, 2, 1);
  expect_dense({2, 3, 20, 8}, 0, 1, 1);
}

// Of longer sequences a block has some heads, and of 1000 tokens some rows of one.
TEST_P(DroppedAttentions, AreTheSameInManyBlocks) {
  expect_dense({2, 5, 300, 4}, 0.2);
  if (GetParam().type == at::kFloat) expect_dense({1, 2, 1000, 4}, 0.2, 1, 1);
}

INSTANTIATE_TEST_SUITE_P(All, DroppedAttentions, testing::ValuesIn(kKernelCases), kernel_case_name);

}  // namespace
}  // namespace neox
