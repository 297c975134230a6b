// Dropout with what stands around it, and the kernels of the optimizer's step, against ATen.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "kernel_cases.h"
#include "ops/adamw.h"
#include "ops/dropout.h"
#include "ops/one_moment.h"

namespace neox {
namespace {

class Dropouts : public KernelTest {
 protected:
  Tensor sample(int64_t number) const { return on(at::scalar_tensor(number, at::kLong)); }
  // 0 or 1 / (1 - p) for each element, from Philox itself.
  static Tensor mask(at::IntArrayRef shape, double p, const DropoutSite& site) {
    Tensor m = at::ones(shape, at::kDouble);
    int64_t per_sample = m.numel() / shape[0], first = site.first_sample.item<int64_t>();
    auto* at = m.mutable_data_ptr<double>();
    for (int64_t i = 0; i < m.numel(); ++i) {
      int64_t position = site.offset + i % per_sample;
      Random4 block = philox(site.key, static_cast<uint64_t>(position / 4),
                             static_cast<uint64_t>(first + i / per_sample));
      at[i] = block.v[position % 4] < p * 4294967296.0 ? 0 : 1 / (1 - p);
    }
    return m;
  }
};

TEST_P(Dropouts, MasksAreThoseOfPhiloxWhateverTheShape) {
  for (std::vector<int64_t> shape :
       {std::vector<int64_t>{3, 5, 7}, {2, 9, 64}, {2, 3, 1200}, {4, 33}})
    for (int64_t offset : {0, 3, 8}) {
      DropoutSite site{.key = 77, .first_sample = sample(5), .offset = offset};
      Tensor y = dropout(on(at::ones(shape, GetParam().type)), 0.3, site);
      EXPECT_TRUE((y != 0).cpu().equal(mask(shape, 0.3, site) != 0));
      expect_close(y, mask(shape, 0.3, site), "value");
    }
}

TEST_P(Dropouts, NextToOneLeaveNothing) {
  DropoutSite site{.key = 77, .first_sample = sample(5)};
  Tensor y = dropout(on(at::ones({4, 64}, GetParam().type)), 0.9999999999, site);
  EXPECT_EQ((y != 0).sum().item<int64_t>(), 0);
}

TEST_P(Dropouts, AddBiasAndResidualAndTheirGradients) {
  DropoutSite site{.key = 9, .first_sample = sample(1)};
  for (int64_t C : {20, 64}) {
    std::vector<Tensor> in{leaf({2, 150, C}), leaf({2, 150, C}), leaf({C})}, want;
    for (const Tensor& t : in) want.push_back(reference(t));
    Tensor got = dropped_sum(in[0], in[1], in[2], 0.25, site), d = random(got.sizes());
    Tensor y = want[0] + (want[1] + want[2]) * mask({2, 150, C}, 0.25, site);
    expect_close(got, y, "value");
    got.backward(d);
    y.backward(reference(d));
    expect_gradients(in, want);
  }
}

// As where tokens are shared out: parts of two samples and one and a half.
TEST_P(Dropouts, OfPartsOfSamplesAreThoseOfTheWhole) {
  for (int64_t C : {20, 64}) {
    std::vector<Tensor> whole{leaf({3, 6, C}), leaf({3, 6, C}), leaf({C})};
    Tensor d = on(random({3, 6, C}));
    DropoutSite site{.key = 9, .first_sample = sample(1), .offset = 4};
    Tensor want = dropped_sum(whole[0], whole[1], whole[2], 0.25, site);
    want.backward(d);
    for (int64_t k : {0, 1}) {
      auto part = [&](const Tensor& x) { return x.view({2, 3, 3, C})[k]; };
      auto own = [&](const Tensor& x) { return part(x.detach()).set_requires_grad(true); };
      Tensor residual = own(whole[0]), x = own(whole[1]);
      site.before = k * 9 * C;
      site.per_sample = 6 * C;
      Tensor got = dropped_sum(residual, x, whole[2].detach(), 0.25, site);
      EXPECT_TRUE(got.equal(part(want)));
      got.backward(part(d));
      EXPECT_TRUE(x.grad().equal(part(whole[1].grad())));
    }
  }
}

// As of probabilities: the first columns of some rows.
TEST_P(Dropouts, OfBeginningsOfRowsAreThoseOfTheWhole) {
  for (auto [C, some] : {std::pair<int64_t, int64_t>{20, 12}, {64, 32}, {33, 8}, {64, 7}}) {
    Tensor whole = random({2, 3, 6, C});
    DropoutSite site{.key = 9, .first_sample = sample(1), .offset = 4};
    Tensor want = dropout(whole, 0.25, site);
    site.before = ((1 * 3 + 2) * 6 + 1) * C;  // of the last head
    site.per_sample = 18 * C;
    site.row = C;
    auto part = [some = some](const Tensor& x) {
      return x[1][2].narrow(0, 1, 4).narrow(1, 0, some);
    };
    EXPECT_TRUE(dropout(part(whole).contiguous(), 0.25, site).equal(part(want))) << C;
  }
}

TEST_P(Dropouts, TakeInputsThatBeginAnywhere) {
  DropoutSite site{.key = 9, .first_sample = sample(1)};
  Tensor residual = random({2, 9, 64}), x = random({2, 9, 64}), bias = random({64});
  Tensor want = dropped_sum(residual, x, bias, 0.25, site);
  EXPECT_TRUE(dropped_sum(shifted(residual), shifted(x), shifted(bias), 0.25, site).equal(want));
}

TEST_P(Dropouts, RefuseAResidualOfAnotherShape) {
  EXPECT_THROW(dropped_sum(random({2, 3}), random({2, 4}), {}, 0.5, {}), Error);
  EXPECT_THROW(dropped_sum(random({2, 4}), random({2, 4}), random({3}), 0.5, {}), Error);
}

class Updates : public KernelTest {
 protected:
  Tensor scalar(double x) const { return on(at::full({}, x, at::kDouble)); }
};

TEST_P(Updates, SquaresAreSummedInDouble) {
  for (int64_t n : {0, 1, 17, 65536, 200003}) {
    Tensor x = random({n});
    double want = reference(x).square().sum().item<double>(), far = 1e-12 * static_cast<double>(n);
    EXPECT_NEAR(sum_of_squares({{x}}).item<double>(), want, far);
    EXPECT_NEAR(sum_of_squares({{shifted(x)}}).item<double>(), want, far);
    Tensor both = sum_of_squares({{x, 0.5}, {shifted(x), 3}, {random({0})}});
    EXPECT_NEAR(both.item<double>(), 3.5 * want, 4 * far);
  }
}

TEST_P(Updates, AdamWCopiesTheNewParametersRounded) {
  at::ScalarType type = GetParam().type == at::kDouble ? at::kDouble : at::kFloat;
  for (int64_t n : {3, 4096, 100003}) {
    auto flat = [&] { return on(at::randn({n}, type)); };
    Tensor p = flat(), m = flat(), v = flat().square(), grad = flat();
    Tensor p2 = p.clone(), m2 = m.clone(), v2 = v.clone();
    Tensor copy = on(at::ones({n}, type == at::kDouble ? at::kFloat : GetParam().type));
    AdamWConstants c{0.9, 0.95, 1e-8, 0.1};
    UpdateScalars s{scalar(1e-2), scalar(0.5), scalar(3), scalar(1)};
    adamw(p, grad, m, v, c, s, copy);
    adamw(p2, grad, m2, v2, c, s);
    EXPECT_TRUE(p.equal(p2) && m.equal(m2) && v.equal(v2));
    EXPECT_TRUE(copy.equal(p.to(copy.scalar_type())));
    s.finite = scalar(0);
    adamw(p, grad, m, v, c, s, copy);
    EXPECT_TRUE(p.equal(p2));
  }
}

TEST_P(Updates, AdamWEqualsAnAtenChain) {
  at::ScalarType type = GetParam().type == at::kDouble ? at::kDouble : at::kFloat;
  Tensor p = on(at::randn({10007}, type)), m = at::zeros_like(p), v = at::zeros_like(p);
  Tensor grad = on(at::randn({10007}, type)), g = reference(grad), want = reference(p);
  adamw(p, grad, m, v, {0.9, 0.95, 1e-8, 0.1}, {scalar(1e-2), scalar(0.5), scalar(1), scalar(1)});
  g = g * 0.5;
  want = want * (1 - 1e-3) - g / (g.abs() + 1e-8) * 1e-2;
  expect_close(p, want, "parameters");
}

TEST_P(Updates, AdamWTakesInputsThatBeginAnywhere) {
  at::ScalarType type = GetParam().type == at::kDouble ? at::kDouble : at::kFloat;
  auto flat = [&] { return on(at::randn({1003}, type)); };
  Tensor p = flat(), m = flat(), v = flat().square(), grad = flat();
  Tensor p2 = shifted(p), m2 = shifted(m), v2 = shifted(v);
  AdamWConstants c{0.9, 0.95, 1e-8, 0.1};
  UpdateScalars s{scalar(1e-2), scalar(0.5), scalar(3), scalar(1)};
  adamw(p, grad, m, v, c, s);
  adamw(p2, shifted(grad), m2, v2, c, s);
  EXPECT_TRUE(p.equal(p2) && m.equal(m2) && v.equal(v2));
}

TEST_P(Updates, SgdEqualsAnAtenChain) {
  at::ScalarType type = GetParam().type == at::kDouble ? at::kDouble : at::kFloat;
  for (double momentum : {0.0, 0.9})
    for (Nesterov nesterov : {Nesterov::kNo, Nesterov::kYes})
      for (double step : {1.0, 2.0}) {
        if (momentum == 0 && nesterov == Nesterov::kYes) continue;
        Tensor p = on(at::randn({1003}, type)), grad = on(at::randn({1003}, type)), m;
        if (momentum != 0) m = at::zeros_like(p);
        Tensor g = reference(grad) * 0.5 + reference(p) * 0.1, moment = g;
        if (momentum != 0 && step > 1) moment = g * (1 - 0.25);
        if (nesterov == Nesterov::kYes) moment = g + moment * momentum;
        Tensor want = reference(p) - moment * 1e-2;
        sgd(p, grad, m, {momentum, 0.25, 0.1, nesterov},
            {scalar(1e-2), scalar(0.5), scalar(step), scalar(1)});
        expect_close(p, want, "parameters");
        Tensor before = p.clone();
        sgd(p, grad, m, {momentum}, {scalar(1e-2), scalar(0.5), scalar(step), scalar(0)});
        EXPECT_TRUE(p.equal(before));
      }
}

TEST_P(Updates, LionEqualsAnAtenChain) {
  at::ScalarType type = GetParam().type == at::kDouble ? at::kDouble : at::kFloat;
  Tensor p = on(at::randn({1003}, type)), m = on(at::randn({1003}, type)), before = m.clone();
  Tensor grad = on(at::randn({1003}, type)), g = reference(grad) * 0.5;
  Tensor direction = reference(m) * 0.9 + g * 0.1;
  Tensor want = reference(p) * (1 - 1e-3) - direction.sign() * 1e-2;
  lion(p, grad, m, {0.9, 0.95, 0.1}, {scalar(1e-2), scalar(0.5), scalar(1), scalar(1)});
  expect_close(p, want, "parameters");
  expect_close(m, reference(before) * 0.95 + g * 0.05, "moments");
}

INSTANTIATE_TEST_SUITE_P(All, Dropouts, testing::ValuesIn(kKernelCases), kernel_case_name);
INSTANTIATE_TEST_SUITE_P(All, Updates, testing::ValuesIn(kKernelCases), kernel_case_name);

}  // namespace
}  // namespace neox
