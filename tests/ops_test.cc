// Products and head against ATen's operations; initial values and dropout against what they
// are drawn from; the partition of layers.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "model/gpt_neox.h"
#include "model/head.h"
#include "ops/bf16_kernels.h"
#include "ops/dropout.h"
#include "ops/product.h"
#include "ops/random.h"
#include "ops/rotary.h"

// In front of MKL's own (lib/ops/product.cc), if LibTorch has it.
static int g_processor_asked = 0;
extern "C" int mkl_vml_serv_cpu_detect() {
  ++g_processor_asked;
  auto mkl = reinterpret_cast<int (*)()>(::dlsym(RTLD_NEXT, "mkl_vml_serv_cpu_detect"));
  return mkl ? mkl() : 0;
}

namespace neox {
namespace {

struct Start : testing::Environment {
  void SetUp() override { asked = g_processor_asked; }
  int asked = 0;  // before all tests
};
const Start& start = static_cast<Start&>(*testing::AddGlobalTestEnvironment(new Start));

TEST(Product, MklFindsTheProcessorBeforeThereAreThreads) {
  if (!::dlsym(RTLD_NEXT, "mkl_vml_serv_cpu_detect")) GTEST_SKIP() << "LibTorch has no MKL";
  EXPECT_GT(start.asked, 0);
}

double relative(const Tensor& a, const Tensor& b) {
  Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

struct Tolerance {
  at::ScalarType type;
  double value;  // of ||a - b|| / ||b||
};
const Tolerance kTolerances[] = {
    {at::kDouble, 1e-15}, {at::kFloat, 1e-7}, {at::kHalf, 1e-3}, {at::kBFloat16, 8e-3}};

TEST(Product, InFp32IsTheProductOfHalfTypesForwardAndBackward) {
  int64_t B = 3, T = 40, K = 24, N = 17;
  for (auto [type, tolerance] : kTolerances) {
    if (type == at::kDouble || type == at::kFloat) continue;
    for (bool with_bias : {true, false}) {
      auto leaf = [&](at::IntArrayRef shape) {
        return at::randn(shape, at::kFloat).to(type).set_requires_grad(true);
      };
      auto wide = [](const Tensor& x) {
        return x.defined() ? x.detach().to(at::kDouble).set_requires_grad(true) : x;
      };
      Tensor x = leaf({B, T, K}), w = leaf({N, K}), b = with_bias ? leaf({N}) : Tensor();
      Tensor x64 = wide(x), w64 = wide(w), b64 = wide(b), dy = at::randn({B, T, N}).to(type);
      Tensor y = product_in(at::kFloat, x, w, b), y64 = at::linear(x64, w64, b64);
      y.backward(dy);
      y64.backward(dy.to(at::kDouble));
      EXPECT_EQ(y.scalar_type(), type);
      EXPECT_LE(relative(y, y64), tolerance);
      EXPECT_LE(relative(x.grad(), x64.grad()), tolerance);
      EXPECT_LE(relative(w.grad(), w64.grad()), tolerance);
      if (!with_bias) continue;
      EXPECT_LE(relative(b.grad(), b64.grad()), tolerance);
    }
  }
}

TEST(Product, TakesTheTypeOfItsInputsWhereFewRowsAreMultiplied) {
  Tensor x = at::randn({3, 24}).to(at::kBFloat16), w = at::randn({17, 24}).to(at::kBFloat16);
  EXPECT_FALSE(multiplied_in_fp32(x));
  EXPECT_FALSE(multiplied_in_fp32(at::randn({4096, 24})));
  EXPECT_TRUE(product(x, w).equal(at::linear(x, w)));
}

TEST(Rotary, LeavesValuesAndTheRestOfAHeadAsTheyAre) {
  RotaryTable table = rotary_table(8, {.rotary = 4}, at::kCPU);
  Tensor x = at::randn({1, 8, 2 * 3 * 6}), y = x.clone();
  rotated_heads_(y, {2}, table);
  Tensor before = x.view({1, 8, 2, 3, 6}), after = y.view({1, 8, 2, 3, 6});
  EXPECT_TRUE(after.select(3, 2).equal(before.select(3, 2)));
  EXPECT_TRUE(after.narrow(4, 4, 2).equal(before.narrow(4, 4, 2)));
  EXPECT_TRUE(after.select(1, 0).equal(before.select(1, 0)));  // angle 0
  EXPECT_FALSE(after.narrow(4, 0, 4).equal(before.narrow(4, 0, 4)));
}

TEST(Rotary, RefusesPositionsBeyondItsTable) {
  RotaryTable table = rotary_table(8, {.rotary = 4}, at::kCPU);
  EXPECT_NO_THROW(rows_from(table, 5, 3));
  EXPECT_THROW(rows_from(table, 6, 3), Error);
  EXPECT_NO_THROW(rows_from(rotary_table(2, {.rotary = 0}, at::kCPU), 6, 3));
}

struct HeadInputs {
  Tensor x, weight, targets, weights;
};

HeadInputs head_inputs(int64_t N, int64_t hidden, int64_t V, at::ScalarType type) {
  return {(at::randn({N, hidden}, at::kDouble) * 2).to(type).set_requires_grad(true),
          at::randn({V, hidden}, at::kDouble).to(type).set_requires_grad(true),
          at::randint(V, {N}, at::kLong), at::rand({N}, at::kFloat) * at::randint(2, {N})};
}

void expect_cross_entropy(const HeadInputs& in, double tolerance) {
  auto self = self_communicator();
  Tensor seed = at::full({}, 0.37, at::kDouble);
  Tensor loss = head_loss(in.x, in.weight, {in.targets, in.weights, seed}, *self);
  loss.backward();
  Tensor x = in.x.detach().to(at::kDouble).set_requires_grad(true);
  Tensor weight = in.weight.detach().to(at::kDouble).set_requires_grad(true);
  Tensor each = at::cross_entropy_loss(at::linear(x, weight), in.targets, {}, at::Reduction::None);
  Tensor want = (each * in.weights.to(at::kDouble)).sum();
  (want * seed).backward();
  EXPECT_LE(relative(loss.detach(), want.detach()), tolerance);
  EXPECT_LE(relative(in.x.grad(), x.grad()), tolerance);
  EXPECT_LE(relative(in.weight.grad(), weight.grad()), tolerance);
  at::NoGradGuard no_grad;
  EXPECT_TRUE(head_loss(in.x, in.weight, {in.targets, in.weights, {}}, *self).equal(loss));
}

TEST(Head, EqualsTheWeightedSumOfAtensCrossEntropies) {
  expect_cross_entropy(head_inputs(50, 24, 101, at::kDouble), 1e-14);
  expect_cross_entropy(head_inputs(50, 24, 101, at::kFloat), 1e-6);
  expect_cross_entropy(head_inputs(50, 24, 101, at::kBFloat16), 2e-2);
  expect_cross_entropy(head_inputs(50, 24, 101, at::kHalf), 2e-3);
}

TEST(Head, TakesAVocabularySoLargeThatTokensPassInChunks) {
  // 45 rows of logits at a time, then 25; on the CPU in float 1536 columns at a time.
  expect_cross_entropy(head_inputs(70, 2, 300007, at::kFloat), 3e-6);
  expect_cross_entropy(head_inputs(70, 2, 300007, at::kDouble), 1e-12);
  expect_cross_entropy(head_inputs(70, 48, 5001, at::kBFloat16),
                       bf16_kernels() ? 1e-2 : 2e-2);  // ATen rounds logits
}

// By each kind of kernels, with logits that are kept and with logits that are computed again: some
// columns and, of 2500 rows, some rows at a time.
TEST(Head, KeepsLogitsOfBf16OrComputesThemAgain) {
  for (const Bf16Kernels* kind : all_bf16_kernels())
    for (bool again : {false, true}) {
      Bf16Kernels kernels = *kind;
      kernels.outruns_memory = again;
      const Bf16Kernels* usual = std::exchange(bf16_kernels(), &kernels);
      expect_cross_entropy(head_inputs(70, 48, 5001, at::kBFloat16), 1e-2);
      expect_cross_entropy(head_inputs(2500, 20, 1030, at::kBFloat16), 1e-2);
      bf16_kernels() = usual;
    }
}

TEST(Head, StaysFiniteWithLogitsBeyondTheRangeOfExp) {
  auto self = self_communicator();
  HeadInputs in = head_inputs(6, 8, 30, at::kFloat);
  Tensor x = (in.x * 500).detach().set_requires_grad(true), ones = at::ones({6});
  Tensor loss = head_loss(x, in.weight, {in.targets, ones, at::full({}, 1.0, at::kDouble)}, *self);
  loss.backward();
  EXPECT_TRUE(std::isfinite(loss.item<double>()));
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

// The initial values of a [rows, columns] weight, or of a tp rank's part of it.
struct InitCase {
  InitMethod method;
  int64_t layers, hidden;
  int64_t rows = 600, columns = 500;
};

Tensor initial(const InitCase& c, InitKind kind = InitKind::kWeight, int tp_dim = 0,
               int tp_rank = 0, int tp_size = 1) {
  ModelConfig config{.layers = c.layers,
                     .hidden = c.hidden,
                     .init_method = c.method,
                     .output_init_method = c.method};
  auto self = self_communicator();
  ModelParam p{{"layers.3.weight", {c.rows, c.columns}, tp_dim, true}, kind};
  ParamBuffer buffer("b", {p.spec}, {.shard = self.get()},
                     {.tp_rank = tp_rank, .tp_size = tp_size});
  initialize(buffer, {p}, config, 1234);
  buffer.publish();
  return buffer.param(0).detach().clone();
}

TEST(Initial, DeviationIsThatOfThePythiaSuite) {
  using enum InitMethod;
  const std::pair<InitCase, double> cases[] = {
      {{kSmallInit, 6, 128}, .055902},
      {{kWangInit, 6, 128}, .029463},  // 14M
      {{kSmallInit, 6, 512}, .027951},
      {{kWangInit, 6, 512}, .014731},  // 70M
      {{kSmallInit, 32, 2560}, .0125},
      {{kWangInit, 32, 2560}, .001235},  // 2.8B
      {{kNormal, 32, 4096}, .02},
      {{kScaledNormal, 32, 4096}, .0025},    // 6.9B
      {{kScaledNormal, 36, 5120}, .002357},  // 12B
      {{kSingleResidualScaledNormal, 36, 5120}, .02 / 6},
      {{kXavierNormal, 6, 128}, std::sqrt(2.0 / 1100)},
      {{kXavierUniform, 6, 128}, std::sqrt(2.0 / 1100)},
  };
  for (const auto& [c, deviation] : cases) {
    Tensor w = initial(c).to(at::kDouble), out = initial(c, InitKind::kOutputWeight);
    EXPECT_NEAR(w.square().mean().sqrt().item<double>() / deviation, 1, 0.01);
    EXPECT_NEAR(w.mean().item<double>() / deviation, 0, 0.01);
    EXPECT_TRUE(out.to(at::kDouble).equal(w));
  }
}

// torch.nn.init.xavier_normal_ of the whole table [buckets, heads], whatever init_method is.
TEST(Initial, DistancesBeginByXaviersRule) {
  ModelConfig config{
      .heads = 64, .position_embedding = PositionEmbedding::kRelative, .rpe_buckets = 448};
  std::vector<ModelParam> params = distance_params(config);
  auto self = self_communicator();
  ParamBuffer buffer("b", {params.at(0).spec}, {.shard = self.get()}, {});
  initialize(buffer, params, config, 1234);
  Tensor all = buffer.master().to(at::kDouble);
  EXPECT_NEAR(all.square().mean().sqrt().item<double>() / std::sqrt(2.0 / 512), 1, 0.02);
}

TEST(Initial, NormalHasTailsAndUniformHasNone) {
  Tensor normal = initial({InitMethod::kXavierNormal, 1, 8});
  Tensor uniform = initial({InitMethod::kXavierUniform, 1, 8});
  double bound = std::sqrt(6.0 / 1100);
  EXPECT_LE(uniform.abs().max().item<double>(), bound * (1 + 1e-6));
  EXPECT_GT(uniform.abs().max().item<double>(), 0.99 * bound);
  EXPECT_GT(normal.abs().max().item<double>(), 1.5 * bound);
}

TEST(Initial, OrthogonalIsOrthogonalInTheShorterDimension) {
  for (auto [rows, columns] : {std::pair{96, 64}, std::pair{64, 96}, std::pair{50, 50}}) {
    for (auto method : {InitMethod::kOrthogonal, InitMethod::kScaledOrthogonal}) {
      Tensor w = initial({method, 8, 64, rows, columns}).to(at::kDouble);
      Tensor square = rows < columns ? at::mm(w, w.t()) : at::mm(w.t(), w);
      double scale = method == InitMethod::kOrthogonal ? 2 : 2.0 / 8;  // 2 / L
      EXPECT_LE((square / scale - at::eye(square.size(0), at::kDouble)).abs().max().item<double>(),
                1e-5);
    }
  }
}

TEST(Initial, OrthogonalIsTheSameWithAnyNumberOfThreads) {
  InitCase c{InitMethod::kOrthogonal, 4, 60, 180, 60};
  int threads = at::get_num_threads();
  at::set_num_threads(1);
  Tensor one = initial(c);
  at::set_num_threads(2);
  EXPECT_TRUE(initial(c).equal(one));
  at::set_num_threads(threads);
}

TEST(Initial, APartOverTpEqualsThatPartOfTheWhole) {
  using enum InitMethod;
  for (InitMethod method : {kNormal, kWangInit, kXavierUniform, kXavierNormal, kOrthogonal}) {
    InitCase c{method, 4, 60, 60, 42};
    Tensor all = initial(c);
    for (int dim : {0, 1})
      for (int rank = 0; rank < 3; ++rank) {
        int64_t size = all.size(dim) / 3;
        Tensor part = initial(c, InitKind::kWeight, dim, rank, 3);
        EXPECT_TRUE(part.equal(all.narrow(dim, rank * size, size))) << dim << " " << rank;
      }
  }
}

TEST(Initial, BiasesAreZeroNormsOneAndNoTwoWeightsAlike) {
  ModelConfig config{.layers = 2,
                     .hidden = 8,
                     .heads = 2,
                     .seq = 4,
                     .positions = 4,
                     .vocab = 12,
                     .intermediate = 32,
                     .tied_embedding = false};
  auto self = self_communicator();
  Mesh mesh({}, *self);
  GptNeoX model(config, mesh, {});
  for (ParamBuffer* buffer : model.buffers())
    for (const ParamSpec& spec : buffer->specs()) {
      const Tensor& p = model.param(spec.name);
      bool bias = spec.name.ends_with("bias");
      if (p.dim() == 1) {
        EXPECT_TRUE(p.equal(at::full(p.sizes(), bias ? 0.0 : 1.0))) << spec.name;
      }
      EXPECT_EQ(buffer->decay(), p.dim() == 2) << spec.name;
    }
  EXPECT_FALSE(model.param("embed_in.weight").equal(model.param("embed_out.weight")));
  EXPECT_FALSE(model.param("layers.0.attention.dense.weight")
                   .equal(model.param("layers.1.attention.dense.weight")));
}

std::vector<int64_t> sizes(int64_t layers, int stages, const std::string& method, int64_t vocab) {
  ModelConfig config{
      .layers = layers, .hidden = 16, .heads = 2, .vocab = vocab, .intermediate = 64};
  std::vector<int64_t> sizes;
  int64_t next = 0;
  for (auto [first, last] : partition_layers(config, stages, method)) {
    EXPECT_EQ(first, next);
    next = last;
    sizes.push_back(last - first);
  }
  EXPECT_EQ(next, layers);
  return sizes;
}

using Sizes = std::vector<int64_t>;

TEST(Partition, GivesEarlierStagesTheLayersLeftOver) {
  EXPECT_EQ(sizes(5, 4, "type:transformer|mlp", 64), (Sizes{2, 1, 1, 1}));
  EXPECT_EQ(sizes(8, 4, "type:transformer|mlp", 64), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(sizes(7, 3, "uniform", 64), (Sizes{3, 2, 2}));
  EXPECT_EQ(sizes(3, 1, "", 64), (Sizes{3}));
}

TEST(Partition, ByParametersGivesTheStagesWithAnEmbeddingFewerLayers) {
  // A layer has 3296 parameters; a table as many as two layers, as ten, as none to speak of.
  EXPECT_EQ(sizes(8, 3, "parameters", 412), (Sizes{2, 4, 2}));
  EXPECT_EQ(sizes(6, 3, "parameters", 2060), (Sizes{1, 4, 1}));
  EXPECT_EQ(sizes(6, 3, "parameters", 1), (Sizes{2, 2, 2}));
}

TEST(Partition, RefusesMoreStagesThanLayers) {
  try {
    sizes(3, 4, "", 64);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::kUsage);
    EXPECT_NE(std::string(e.what()).find("pipe_parallel_size 4"), std::string::npos);
  }
}

TEST(Dropout, DropsTheFractionAskedForAndScalesTheRestExactly) {
  int64_t n = 1 << 20;
  for (double p : {0.01, 0.1, 0.5, 0.9}) {
    Tensor y = dropout(at::ones({16, n / 16}, at::kDouble), p, {.key = random_key(7, "a")});
    Tensor kept = y != 0;
    double dropped = 1 - kept.to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(dropped, p, 5 * std::sqrt(p * (1 - p) / static_cast<double>(n)));
    EXPECT_EQ(y.max().item<double>(), 1 / (1 - p));
    EXPECT_EQ(y.masked_select(kept).min().item<double>(), 1 / (1 - p));
  }
}

TEST(Dropout, MasksOfSamplesPlacesAndSeedsAreIndependent) {
  auto mask = [](int64_t seed, const char* place, int64_t sample) {
    DropoutSite site{.key = random_key(seed, place),
                     .first_sample = at::scalar_tensor(sample, at::kLong)};
    return dropout(at::ones({1, 1 << 18}), 0.5, site) != 0;
  };
  Tensor one = mask(1, "a", 0);
  EXPECT_TRUE(one.equal(mask(1, "a", 0)));
  for (const Tensor& other : {mask(1, "a", 1), mask(1, "b", 0), mask(2, "a", 0)})
    EXPECT_NEAR((one == other).to(at::kDouble).mean().item<double>(), 0.5, 5 * 0.5 / 512);
}

}  // namespace
}  // namespace neox
