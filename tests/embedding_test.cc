// The gradient of an embedding, added to the buffer that is kept for it, against ATen.
#include <ATen/OpMathType.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include "kernel_cases.h"
#include "ops/embedding.h"

namespace neox {
namespace {

class Embeddings : public KernelTest {
 protected:
  // A table whose gradient is kept in what sums are taken in, as ParamBuffer keeps it.
  Tensor table(int64_t rows, int64_t columns) const {
    Tensor weight = leaf({rows, columns});
    at::ScalarType type = at::toOpMathType(GetParam().type);
    weight.set_grad_dtype(type);
    weight.mutable_grad() = on(at::randn({rows, columns}, type));
    return weight;
  }
  void expect_gradient(const Tensor& rows, int64_t V, int64_t C, int64_t first = 0) const {
    SCOPED_TRACE(testing::Message() << rows.numel() << " rows of " << V << " x " << C);
    Tensor weight = table(V, C), kept = weight.grad(), want = reference(kept);
    Tensor x = embedding_rows(weight, on(rows), first), dy = random(x.sizes());
    Tensor row = rows.flatten() - first, mine = (row >= 0).logical_and(row < V).unsqueeze(1);
    row = row.clamp(0, V - 1);
    Tensor value = weight.detach().index_select(0, on(row)) * on(mine);
    EXPECT_TRUE(x.detach().flatten(0, 1).equal(value));
    x.backward(dy);
    EXPECT_TRUE(weight.grad().is_same(kept));
    want.index_add_(0, row, reference(dy).flatten(0, 1) * mine);
    expect_close(kept, want, "gradient");
  }
};

TEST_P(Embeddings, AddTheSumOfEachRowsGradients) {
  for (int64_t C : {7, 20, 64, 600})
    for (int64_t V : {1, 3, 40, 1000})
      for (int64_t T : {1, 8, 17, 150}) expect_gradient(at::randint(V, {2, T}, at::kLong), V, C);
}

// One row each, pairs that cross sixteens or end there, one that goes on through many of them.
TEST_P(Embeddings, AddRowsThatStandAnyhowInTheSortedOrder) {
  Tensor each = at::arange(64, at::kLong);
  auto repeated = [](int64_t row, int64_t n) { return at::full({n}, row, at::kLong); };
  for (const Tensor& rows :
       {each, each.div(2, "floor"), at::cat({each.narrow(0, 0, 1), each.div(2, "floor")}),
        at::cat({each, repeated(5, 100)}), at::cat({repeated(0, 16), repeated(1, 16), each}),
        at::cat({repeated(63, 15), repeated(62, 33), each}), repeated(7, 48)})
    expect_gradient(rows.view({1, -1}), 64, 64);
}

// As where the rest of the table is another rank's.
TEST_P(Embeddings, LeaveOutRowsThatTheTableDoesNotHave) {
  for (int64_t C : {7, 64})
    for (int64_t V : {1, 20, 500})
      for (int64_t first : {int64_t{0}, V, 2 * V})
        expect_gradient(at::randint(4 * V, {2, 150}, at::kLong), V, C, first);
}

TEST_P(Embeddings, MakeAGradientWhereNoneIsKept) {
  Tensor weight = leaf({9, 16}), rows = at::randint(9, {2, 40}, at::kLong);
  Tensor dy = random({2, 40, 16}), want = at::zeros({9, 16}, at::kDouble);
  embedding_rows(weight, on(rows)).backward(dy);
  want.index_add_(0, rows.flatten(), reference(dy).flatten(0, 1));
  expect_close(weight.grad(), want, "gradient");
}

TEST_P(Embeddings, TakeNoTokens) { expect_gradient(at::zeros({2, 0}, at::kLong), 3, 8); }

TEST_P(Embeddings, GiveTheSameBitsEachTime) {
  Tensor weight = table(30, 64), rows = on(at::randint(30, {4, 200}, at::kLong)),
         start = weight.grad().clone(), first;
  Tensor dy = random({4, 200, 64});
  for (int time = 0; time < 3; ++time) {
    weight.mutable_grad().copy_(start);
    embedding_rows(weight, rows).backward(dy);
    if (time == 0) first = weight.grad().clone();
    EXPECT_TRUE(weight.grad().equal(first));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Embeddings, testing::ValuesIn(kKernelCases), kernel_case_name);

}  // namespace
}  // namespace neox
