// The arithmetic of decoding for each instruction set that this processor has, against ATen in
// double, at sizes that fill no vector.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "ops/packed_weights.h"
#include "ops/row_kernels.h"
#include "ops/team.h"

namespace neox {
namespace {

using at::Tensor;

double relative(const Tensor& a, const Tensor& b) {
  Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

FloatRows rows(const Tensor& x) { return {x.mutable_data_ptr<float>(), x.size(0), x.size(1)}; }

Tensor padded(const Tensor& x) {
  Tensor y = at::zeros({x.size(0), padded_row(x.size(1))}, at::kFloat);
  y.narrow(1, 0, x.size(1)).copy_(x);
  return y;
}

WeightMatrix matrix(const Tensor& w) {
  WeightType type = w.scalar_type() == at::kFloat ? WeightType::kFloat : WeightType::kBfloat16;
  return {w.const_data_ptr(), type, w.size(0), w.size(1)};
}

class Kernels : public ::testing::TestWithParam<const RowKernels*> {
 protected:
  const RowKernels& k = *GetParam();
};
INSTANTIATE_TEST_SUITE_P(Of, Kernels, ::testing::ValuesIn(all_row_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

// Rows [from, to) of N rows of weights are multiplied, into rows of activations of `width`.
struct ProductCase {
  int64_t N, from, to, columns, batch, width;
};

void expect_product(const RowKernels& k, at::ScalarType type, const ProductCase& c) {
  Tensor w = at::randn({c.N, c.columns}).to(type);
  Tensor x = at::randn({c.batch, c.columns}).to(type).to(at::kFloat);  // exact in any product
  Tensor y = at::zeros({c.batch, c.width}, at::kFloat);
  k.multiply(matrix(w), c.from, c.to, rows(padded(x)), rows(y));
  int64_t n = c.to - c.from;
  Tensor wanted = x.to(at::kDouble).matmul(w.to(at::kDouble).t()).narrow(1, c.from, n);
  EXPECT_LT(relative(y.narrow(1, c.from, n), wanted), 1e-6) << c.columns << " " << c.batch;
  EXPECT_EQ(y.narrow(1, 0, c.from).abs().sum().item<float>(), 0);
  EXPECT_EQ(y.narrow(1, c.to, c.width - c.to).abs().sum().item<float>(), 0);
}

TEST_P(Kernels, MultiplyAnyShape) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (int64_t columns : {1, 31, 96, 1061, 4170})
      for (int64_t batch : {1, 2, 3, 4, 7, 8, 19})
        expect_product(k, type, {117, 2, 117, columns, batch, 120});
}

// Kernels that read several places at once have many rows of each.
TEST_P(Kernels, MultiplyManyRows) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (int64_t columns : {64, 70})
      for (int64_t batch : {1, 5, 16, 33, 50})
        expect_product(k, type, {621, 5, 613, columns, batch, 621});
}

TEST_P(Kernels, RoundActivationsToBf16AtMost) {
  Tensor w = at::randn({37, 1061}).to(at::kBFloat16), x = at::randn({3, 1061});
  Tensor y = at::zeros({3, 37}, at::kFloat);
  k.multiply(matrix(w), 0, 37, rows(padded(x)), rows(y));
  EXPECT_LT(relative(y, x.to(at::kDouble).matmul(w.to(at::kDouble).t())), 2.5e-3);
}

TEST_P(Kernels, MultiplyARowAlikeInAnyCompany) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (auto [N, columns] : {std::pair<int64_t, int64_t>{50, 1061}, {310, 224}}) {
      Tensor w = at::randn({N, columns}).to(type), x = padded(at::randn({37, columns}));
      Tensor all = at::zeros({37, N}, at::kFloat), one = at::zeros({1, N}, at::kFloat);
      k.multiply(matrix(w), 0, N, rows(x), rows(all));
      for (int64_t b = 0; b < 37; ++b) {
        for (int64_t n : {0, 13})
          k.multiply(matrix(w), n, n ? N : 13, rows(x.narrow(0, b, 1)), rows(one));
        EXPECT_TRUE(one[0].equal(all[b])) << b;
      }
    }
}

// Weights of N rows, some of exponents that are rare, at the ends of tiles and rows too.
Tensor weights_with_rare_ones(int64_t N, int64_t columns) {
  Tensor w = at::randn({N, columns});
  w[0][0] = -7e20F;
  w[N / 2][columns / 2] = -1e-30F;
  w[N - 1][columns - 2] = 3e-12F;
  w[N - 1][columns - 1] = 1e30F;
  w.narrow(0, N - 3, 2).zero_();
  w[N / 3].mul_(-0.0F);
  return w.to(at::kBFloat16);
}

class PackingKernels : public Kernels {};
std::vector<const RowKernels*> packing_kernels() {
  std::vector<const RowKernels*> all = all_row_kernels();
  std::erase_if(all, [](const RowKernels* k) { return !k->pack; });
  return all;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PackingKernels);
INSTANTIATE_TEST_SUITE_P(Of, PackingKernels, ::testing::ValuesIn(packing_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

// In two parts.
bool pack(PackedMatrix& packed) {
  int64_t groups = packed.num_groups();
  packed.count(1, groups);
  packed.count(0, 1);
  if (!packed.arrange()) return false;
  packed.pack(1, groups);
  packed.pack(0, 1);
  return true;
}

void expect_same_bits(const RowKernels& k, const Tensor& w) {
  WeightMatrix m = matrix(w);
  ASSERT_TRUE(PackedMatrix::fits(k, m));
  PackedMatrix packed(k, m);
  ASSERT_TRUE(pack(packed));
  const int64_t step = m.rows > 1000 ? 4096 : 48;
  for (int64_t batch : {1, 2, 5, 16, 17, 50})
    for (int64_t from = 0; from < m.rows; from += step) {
      Tensor x = padded(at::randn({batch, m.columns})), y = at::zeros({2, batch, m.rows});
      k.multiply(m, from, m.rows, rows(x), rows(y[0]));
      WeightMatrix narrow = m;
      narrow.packed = &packed.packed();
      if (batch == 1) narrow.data = nullptr;  // is not read
      k.multiply(narrow, from, m.rows, rows(x), rows(y[1]));
      EXPECT_TRUE(y[0].equal(y[1])) << m.rows << " " << batch << " " << from;
    }
}

TEST_P(PackingKernels, MultiplyWithTheBitsOfUnpackedWeights) {
  for (auto [N, columns] : {std::pair<int64_t, int64_t>{16, 256}, {64, 1152}, {208, 768}})
    expect_same_bits(k, weights_with_rare_ones(N, columns));
}

TEST_P(PackingKernels, MultiplyWhereWholeRowsHaveRareExponents) {
  Tensor w = at::randn({4096 + 32, 128});
  w[33].mul_(1e-20F);
  w[4096 + 31].mul_(1e-20F);
  expect_same_bits(k, w.to(at::kBFloat16));
}

TEST_P(PackingKernels, LeaveWeightsOfManyExponents) {
  Tensor wide = (at::randn({32, 512}) * at::exp2(at::randn({32, 512}) * 8)).to(at::kBFloat16);
  PackedMatrix packed(k, matrix(wide));
  EXPECT_FALSE(pack(packed));
}

TEST_P(PackingKernels, TakeWholeGroupsOfBf16) {
  Tensor w = at::zeros({64, 256}, at::kBFloat16);
  EXPECT_TRUE(PackedMatrix::fits(k, matrix(w)));
  EXPECT_FALSE(PackedMatrix::fits(k, matrix(w.to(at::kFloat))));
  EXPECT_FALSE(PackedMatrix::fits(k, matrix(w.narrow(0, 0, 24))));
  EXPECT_FALSE(PackedMatrix::fits(k, matrix(w.view({32, 512}).narrow(0, 0, 0))));
  EXPECT_FALSE(PackedMatrix::fits(k, matrix(w.view({1024, 16}))));
}

TEST_P(Kernels, Norm) {
  for (int64_t n : {5, 16, 83}) {
    Tensor x = at::randn({n}) * 3 + 1, w = at::randn({n}), b = at::randn({n}), y = at::empty({n});
    const auto *from = x.const_data_ptr<float>(), *weight = w.const_data_ptr<float>();
    k.norm({weight, b.const_data_ptr<float>(), 1e-5f, false}, from, n, y.mutable_data_ptr<float>());
    EXPECT_LT(relative(y, at::layer_norm(x, {n}, w, b, 1e-5)), 1e-6) << n;
    k.norm({weight, nullptr, 1e-5f, true}, from, n, y.mutable_data_ptr<float>());
    EXPECT_LT(relative(y, at::rms_norm(x, {n}, w, 1e-5)), 1e-6) << n;
  }
}

// Of keys from `first` on, whose weights are e^(0.2 q k + added) by their sum.
Tensor attend(const RowKernels& k, const Tensor& q, const Tensor& keys, const Tensor& values,
              const Tensor& added, int64_t first = 0) {
  int64_t T = keys.size(0), D = q.size(1);
  Tensor scores = at::empty({padded_row(T)}), out = at::zeros(q.sizes());
  k.attend({.q = q.const_data_ptr<float>(),
            .queries = q.size(0),
            .q_stride = D,
            .D = D,
            .scale = 0.2F,
            .keys = keys.const_data_ptr(),
            .values = values.const_data_ptr(),
            .type = matrix(keys).type,
            .first = first,
            .last = T,
            .added = added.const_data_ptr<float>(),
            .added_stride = T,
            .next = first ? keys.const_data_ptr() : nullptr,
            .scores = scores.mutable_data_ptr<float>(),
            .out = out.mutable_data_ptr<float>()});
  return out;
}

TEST_P(Kernels, Attend) {
  // With dot products of bf16 queries and weights are rounded, to 8 bits.
  bool rounds = std::string(k.name) == "avx512bf16";
  auto attention_error = [&](at::ScalarType type) {
    return rounds && type == at::kBFloat16 ? 8e-3 : 1e-6;
  };
  for (at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (int64_t D : {5, 32, 64, 80, 520})
      for (int64_t first : {0, 3}) {
        int64_t T = 41, queries = 3;
        Tensor q = at::randn({queries, D}), keys = at::randn({T, D}).to(type),
               values = at::randn({T, D}).to(type), added = at::randn({queries, T}) * 2;
        auto seen = [&](const Tensor& x) { return x.narrow(0, first, T - first).to(at::kDouble); };
        Tensor s =
            q.to(at::kDouble).matmul(seen(keys).t()) * 0.2 + added.narrow(1, first, T - first);
        EXPECT_LT(relative(attend(k, q, keys, values, added, first),
                           at::softmax(s, 1).matmul(seen(values))),
                  attention_error(type))
            << D;
      }
}

TEST_P(Kernels, AttendToFarKeysNotAtAllAndKeepNan) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Tensor q = at::zeros({2, 64}), keys = at::zeros({41, 64}).to(type),
           values = at::full({41, 64}, 1e38F).to(type), added = at::full({2, 41}, -80.0F);
    values[40] = 1.5F;
    added.select(1, 40) = 0.0F;
    q[1] = std::numeric_limits<float>::quiet_NaN();
    Tensor out = attend(k, q, keys, values, added);
    EXPECT_TRUE(out[0].eq(1.5F).all().item<bool>()) << out[0];
    EXPECT_TRUE(out[1].isnan().all().item<bool>()) << out[1];
  }
}

TEST_P(Kernels, ApplyEachActivation) {
  Tensor x = at::linspace(-30, 30, 2003, at::kFloat), wide = x.to(at::kDouble);
  std::vector<std::pair<Pointwise, Tensor>> cases = {
      {k.gelu_erf, at::gelu(wide)}, {k.gelu_tanh, at::gelu(wide, "tanh")}, {k.relu, wide.relu()},
      {k.silu, at::silu(wide)},     {k.softsign, wide / (1 + wide.abs())}, {k.mish, at::mish(wide)},
      {k.sigmoid, wide.sigmoid()}};
  for (size_t i = 0; i < cases.size(); ++i) {
    Tensor y = x.clone();
    cases[i].first(y.mutable_data_ptr<float>(), y.numel());
    double worst = ((y - cases[i].second).abs() / (1 + wide.abs())).max().item<double>();
    EXPECT_LT(worst, 3e-7) << i;
    Tensor nan = at::full({20}, std::numeric_limits<float>::quiet_NaN());
    cases[i].first(nan.mutable_data_ptr<float>(), nan.numel());
    EXPECT_TRUE(nan.isnan().all().item<bool>()) << i;
  }
}

TEST_P(Kernels, RoundAsATen) {
  Tensor x = at::randn({1001}), y = at::empty({1001}, at::kBFloat16);
  x[7] = std::numeric_limits<float>::quiet_NaN();
  x[8] = std::numeric_limits<float>::infinity();
  k.store(x.const_data_ptr<float>(), 1001, WeightType::kBfloat16, y.mutable_data_ptr());
  EXPECT_TRUE(y[7].isnan().item<bool>());
  x[7] = y[7] = 0;
  EXPECT_TRUE(at::equal(y, x.to(at::kBFloat16)));
}

TEST(Team, SeesWhatTheOthersWroteBeforeTheyMet) {
  std::vector<int> written(3, 0);
  std::atomic<int> wrong = 0;
  run_team(3, [&](Team& team) {
    for (int round = 1; round < 2000; ++round) {
      written[static_cast<size_t>(team.rank())] = round;
      team.meet();
      for (int rank = 0; rank < team.size(); ++rank)
        if (written[static_cast<size_t>(rank)] != round) ++wrong;
      team.meet();
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Team, DealsOutEveryItemOnce) {
  int64_t next = 0;
  for (int rank = 0; rank < 5; ++rank) {
    auto [begin, end] = Team::share_of(rank, 5, 83, 16);
    EXPECT_EQ(begin, next);
    EXPECT_TRUE(end % 16 == 0 || end == 83);
    next = end;
  }
  EXPECT_EQ(next, 83);
}

}  // namespace
}  // namespace neox
