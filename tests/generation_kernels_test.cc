// The kernels of generation's steps of one token against ATen's operations in double, for each
// type, on the CPU and, where there is one, on a GPU.
#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernel_cases.h"
#include "ops/cached_attention.h"
#include "ops/next_tokens.h"
#include "ops/row_products.h"

namespace neox {
namespace {

struct AttentionShape {
  std::vector<int64_t> lengths;
  int64_t D;
  HeadGroups heads;
  int64_t rotary, seen, capacity;
  bool added;

  friend void PrintTo(const AttentionShape& s, std::ostream* out) {
    *out << at::IntArrayRef(s.lengths) << " D " << s.D << " " << s.heads.groups << " x "
         << s.heads.queries << " seen " << s.seen;
  }
};

// Keys of a block are 256, 128, 64 and 32.
const AttentionShape kAttentionShapes[] = {
    {{700}, 32, {2}, 8, 768, 768, false},
    {{5, 0, 300}, 64, {3}, 16, 320, 400, false},
    {{127, 128, 129}, 64, {1, 4}, 64, 130, 130, false},
    {{63, 64}, 80, {2, 3}, 20, 70, 71, false},
    {{0, 40, 255}, 128, {2, 6}, 0, 256, 256, true},
    {{1, 2, 3, 30, 31, 32, 33, 100}, 256, {1}, 64, 101, 110, true}};

class CachedAttention : public KernelTest {
 protected:
  struct Inputs {
    Tensor qkv;
    RotaryTable table;
    CacheStep cache;
  };
  Inputs inputs(const AttentionShape& s) const {
    auto B = static_cast<int64_t>(s.lengths.size()), K = s.heads.groups, G = s.heads.queries;
    Inputs in{.qkv = random({B, 1, K * (G + 2) * s.D}),
              .table = rotary_table(s.capacity, {.rotary = s.rotary}, GetParam().device),
              .cache = {.keys = random({B, K, s.capacity, s.D}),
                        .values = random({B, K, s.capacity, s.D}),
                        .lengths = on(at::tensor(at::ArrayRef<int64_t>(s.lengths))),
                        .seen = s.seen,
                        .scale = s.added ? 0.03 : 1 / std::sqrt(static_cast<double>(s.D)),
                        .arrived = on(at::zeros({B * K * G}, at::kInt))}};
    if (s.added) {
      in.cache.added = random({B * K, G, s.seen});  // no row sees its first keys
      in.cache.added.narrow(2, 0, 30).fill_(-std::numeric_limits<double>::infinity());
      Tensor flat = in.cache.added.view({B, K * G, s.seen});
      for (int64_t b = 0; b < B; ++b)
        flat[b].narrow(1, s.lengths[static_cast<size_t>(b)], 1).fill_(1);
    }
    return in;
  }
  // What ATen's operations make of it in double, and of keys and values.
  static Tensor wanted(const AttentionShape& s, const Inputs& in, CacheStep& cache) {
    cache = {.keys = reference(in.cache.keys),
             .values = reference(in.cache.values),
             .lengths = in.cache.lengths.cpu(),
             .seen = s.seen,
             .scale = in.cache.scale,
             .added = reference(in.cache.added)};
    int64_t B = in.qkv.size(0), K = s.heads.groups, G = s.heads.queries;
    if (!s.added) cache.added = at::zeros({B * K, G, s.seen}, at::kDouble);
    for (int64_t b = 0; b < B; ++b) {
      int64_t behind = s.lengths[static_cast<size_t>(b)] + 1;
      Tensor hidden = cache.added.narrow(0, b * K, K).narrow(2, behind, s.seen - behind);
      hidden.fill_(-std::numeric_limits<double>::infinity());
    }
    RotaryTable rows = rows_at({in.table.cos.cpu(), in.table.sin.cpu()}, cache.lengths);
    Heads heads = rotated_heads_(reference(in.qkv), s.heads, rows);
    return attend_cached_step(heads.q, heads.k, heads.v, cache).flatten(1);
  }
};

TEST_P(CachedAttention, EqualsAtensInDouble) {
  for (const AttentionShape& shape : kAttentionShapes) {
    SCOPED_TRACE(testing::PrintToString(shape));
    Inputs in = inputs(shape);
    CacheStep cache;
    Tensor want = wanted(shape, in, cache);
    expect_close(cached_attention_(in.qkv, shape.heads, in.table, in.cache), want, "attended");
    expect_close(in.cache.keys, cache.keys, "keys");
    expect_close(in.cache.values, cache.values, "values");
    EXPECT_EQ(in.cache.arrived.count_nonzero().item<int64_t>(), 0);
  }
}

TEST_P(CachedAttention, OfAnEmptyRowIsItsValue) {
  Inputs in = inputs({{0, 0}, 64, {2}, 16, 128, 128, false});
  in.cache.keys.fill_(0), in.cache.values.fill_(0);
  Tensor value = in.qkv.view({2, 2, 3, 64}).select(2, 2).clone().reshape({2, 128});
  EXPECT_TRUE(cached_attention_(in.qkv, {2}, in.table, in.cache).equal(value));
}

TEST_P(CachedAttention, RefusesWhatDoesNotFit) {
  AttentionShape shape{{5}, 64, {2}, 16, 128, 128, false};
  auto refused = [&](auto change) {
    Inputs in = inputs(shape);
    change(in);
    EXPECT_THROW(cached_attention_(in.qkv, shape.heads, in.table, in.cache), Error);
  };
  refused([](Inputs& in) { in.qkv = in.qkv.narrow(2, 0, 320).contiguous(); });
  refused([](Inputs& in) { in.cache.seen = 129; });
  refused([](Inputs& in) { in.cache.keys = in.cache.keys.transpose(1, 2); });
  refused([](Inputs& in) { in.cache.added = in.cache.keys; });
}

INSTANTIATE_TEST_SUITE_P(All, CachedAttention, testing::ValuesIn(kKernelCases), kernel_case_name);

struct ProductShape {
  int64_t B, C, N;
};
// Few rows of weights, whose columns are shared out, and many; steps of 256 columns or less.
const ProductShape kProductShapes[] = {{1, 8, 30},    {2, 520, 6},   {3, 1032, 40}, {4, 256, 16},
                                       {5, 64, 8206}, {8, 2048, 22}, {8, 4096, 12}};

class RowProducts : public KernelTest {
 protected:
  RowTerm term(const ProductShape& s, bool bias = true) const {
    double scale = 1 / std::sqrt(static_cast<double>(s.C));
    return {.x = random({s.B, s.C}),
            .weight = random({s.N, s.C}, scale),
            .bias = bias ? random({s.N}) : Tensor()};
  }
  static Tensor product(const RowTerm& t, const Tensor& x) {
    return at::linear(x, reference(t.weight), reference(t.bias));
  }
  static Tensor layer_normed(const RowTerm& t) {
    return at::layer_norm(reference(t.x) + 0.0, {t.x.size(1)}, reference(t.norm.weight),
                          reference(t.norm.bias), 1e-5);
  }
};

TEST_P(RowProducts, OfTwoTermsAndAResidualAreOneSum) {
  for (const ProductShape& s : kProductShapes) {
    SCOPED_TRACE(s.C);
    RowTerm a = term(s), b = term({s.B, 24, s.N}, false);
    RowSum sum{.terms = {a, b}, .residual = random({s.B, s.N})};
    Tensor want = reference(sum.residual) + product(a, reference(a.x)) + product(b, reference(b.x));
    expect_close(row_products({sum}, {}).front(), want, "sum");
    sum.terms[0].early = true;
    expect_close(row_products({sum}, {}).front(), want, "sum whose first term does not wait");
    sum.terms[0].early = false;
    std::swap(sum.terms[0], sum.terms[1]);
    expect_close(row_products({sum}, {}).front(), want, "sum of the shorter one first");
  }
}

TEST_P(RowProducts, OfTwoNormsOfTheSameRowsAreEachTheirOwn) {
  for (const ProductShape& s : kProductShapes) {
    SCOPED_TRACE(s.C);
    RowTerm a = term(s), b = term({s.B, s.C, 36}, false);
    b.x = a.x;
    a.norm = {random({s.C}), random({s.C})};
    b.norm = {random({s.C}), random({s.C})};
    auto got = row_products({{.terms = {a}}, {.terms = {b}, .activation = Activation::kGeluTanh}},
                            {.kind = Norm::kLayerNorm, .eps = 1e-5});
    expect_close(got[0], product(a, layer_normed(a)), "first");
    expect_close(got[1], at::gelu(product(b, layer_normed(b)), "tanh"), "second");
  }
}

TEST_P(RowProducts, OfAGateMultiplyWhatItLetsThrough) {
  for (const ProductShape& s : kProductShapes) {
    SCOPED_TRACE(s.C);
    RowTerm t = term(s);
    t.x = t.x * 3 + 1;
    t.norm.weight = random({s.C});
    Tensor x = reference(t.x), scale = (x * x).mean(at::IntArrayRef{1}, true).add(1e-3).rsqrt();
    auto parts = product(t, x * scale * reference(t.norm.weight)).view({s.B, -1, 2}).unbind(2);
    RowSum sum{.terms = {t}, .activation = Activation::kSilu, .gated = true};
    expect_close(row_products({sum}, {.kind = Norm::kRmsNorm, .eps = 1e-3}).front(),
                 at::silu(parts[0]) * parts[1], "gated");
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowProducts, testing::ValuesIn(kKernelCases), kernel_case_name);

class NextToken : public KernelTest {
 protected:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                         kInfinity = std::numeric_limits<float>::infinity();

  Tensor integers(at::IntArrayRef values) const { return on(at::tensor(values, at::kLong)); }
  Tensor chosen(const Tensor& logits, int64_t vocab) const {
    Tensor tokens = on(at::full({logits.size(0), 1}, 77, at::kLong));
    next_tokens(logits, vocab, {.tokens = tokens});
    return tokens.flatten().cpu();
  }
  // Of one row: `rest`, but these at their columns.
  int64_t chosen_of(int64_t V, float rest, const std::vector<std::pair<int64_t, float>>& others) {
    Tensor logits = on(at::full({1, V}, rest, GetParam().type));
    for (auto [column, value] : others) logits.select(1, column).fill_(value);
    return chosen(logits, 0).item<int64_t>();
  }
};

// Values of which many are equal, in rows and memory of any alignment, up to several rounds.
TEST_P(NextToken, IsAtensFirstGreatestOne) {
  for (int64_t V : {1, 7, 8, 1000, 8200, 50304, 70001})
    for (int64_t vocab : {int64_t{0}, V / 2 + 1, V, V + 9}) {
      SCOPED_TRACE(testing::Message() << V << ", " << vocab);
      Tensor logits = on(at::randint(-90, V < 2000 ? -1 : 90, {3, V}, at::kLong));
      logits = logits.to(GetParam().type) / 4;
      Tensor known = logits.narrow(1, 0, vocab > 0 ? std::min(vocab, V) : V).cpu();
      Tensor want = at::argmax(known.to(at::kFloat), 1);
      EXPECT_TRUE(chosen(logits, vocab).equal(want));
      EXPECT_TRUE(chosen(shifted(logits), vocab).equal(want));
    }
}

TEST_P(NextToken, OfOneGreatestOneIsFoundAnywhere) {
  for (int64_t V : {8205, 33001})
    for (int64_t column = 0; column < V; column += column < 40 || column > V - 40 ? 1 : 997)
      EXPECT_EQ(chosen_of(V, -3, {{column, -2}}), column);
}

TEST_P(NextToken, IsNoneWhereNumbersAreLost) {
  for (int64_t V : {64, 67, 20011}) {
    EXPECT_EQ(chosen_of(V, kNan, {}), -1);
    EXPECT_EQ(chosen_of(V, kNan, {{9, -kInfinity}, {51, -7}, {52, -7}}), -1);
    for (int64_t column : {int64_t{0}, int64_t{13}, V - 1})
      for (float lost : {kNan, kInfinity}) EXPECT_EQ(chosen_of(V, -1, {{column, lost}}), -1);
    EXPECT_EQ(chosen_of(V, -kInfinity, {}), -1);
    EXPECT_EQ(chosen_of(V, -kInfinity, {{51, -7}, {52, -7}}), 51);
    EXPECT_EQ(chosen_of(V, -1, {{V - 2, 0.0f}, {V - 1, -0.0f}}), V - 2);
    EXPECT_EQ(chosen_of(V, -1, {{V - 2, -0.0f}, {V - 1, 0.0f}}), V - 2);
  }
}

TEST_P(NextToken, MovesItsRowOnByWhatIsAsked) {
  Tensor lengths = integers({5, 0, 7}), tokens = integers({1, 1, 1}).unsqueeze(1);
  next_tokens(random({3, 40}), 0, {tokens, lengths, integers({1, 0, 1})});
  EXPECT_TRUE(lengths.cpu().equal(at::tensor({6, 0, 8}, at::kLong)));
  next_tokens(random({3, 40}), 0, {tokens});
  EXPECT_TRUE(lengths.cpu().equal(at::tensor({6, 0, 8}, at::kLong)));
}

TEST_P(NextToken, OfRowsThatLieApartIsTheSame) {
  Tensor logits = random({90, 3}).t();
  EXPECT_TRUE(chosen(logits, 80).equal(chosen(logits.contiguous(), 80)));
}

TEST_P(NextToken, RefusesWhatDoesNotFit) {
  Tensor logits = random({3, 40}), three = integers({1, 1, 1});
  EXPECT_THROW(next_tokens(logits, 0, {integers({1, 1})}), Error);
  EXPECT_THROW(next_tokens(logits, 0, {three.to(at::kInt)}), Error);
  EXPECT_THROW(next_tokens(logits, 0, {three, three, integers({1})}), Error);
}

INSTANTIATE_TEST_SUITE_P(All, NextToken, testing::ValuesIn(kKernelCases), kernel_case_name);

}  // namespace
}  // namespace neox
