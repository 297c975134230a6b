// Optimizers and their updates against golden values of tests/oracle/optim.py, made by PyTorch and
// numpy.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "comm/thread.h"
#include "ops/adamw.h"
#include "ops/one_moment.h"
#include "ops/orthogonal.h"
#include "optim/muon.h"
#include "optim/one_bit_adam.h"
#include "optim_golden.h"

namespace neox {
namespace {

TEST(AdamW, EqualsPyTorchOverFiveUpdates) {
  for (const auto& j : golden().at("adamw")) {
    at::ScalarType type = j.at("dtype") == "float64" ? at::kDouble : at::kFloat;
    double tolerance = type == at::kDouble ? 1e-14 : 1e-6;
    auto tensor = [&](const nlohmann::json& values) {
      return at::tensor(values.get<std::vector<double>>(), at::kDouble).to(type);
    };
    Tensor p = tensor(j.at("start")), m = at::zeros_like(p), v = at::zeros_like(p);
    AdamWConstants constants{j.at("beta1"), j.at("beta2"), j.at("eps"), j.at("weight_decay")};
    for (size_t step = 0; step < j.at("grads").size(); ++step) {
      // What `scale` undoes is a power of two, so that the gradient stays the same.
      adamw(p, tensor(j.at("grads")[step]) * 8, m, v, constants,
            {scalar(j.at("lr")), scalar(0.125), scalar(static_cast<double>(step + 1)), scalar(1)});
      EXPECT_LE(relative(p, tensor(j.at("params")[step])), tolerance) << "update " << step + 1;
    }
    EXPECT_LE(relative(m, tensor(j.at("m"))), tolerance);
    EXPECT_LE(relative(v, tensor(j.at("v"))), tolerance);
  }
}

// Five updates of each golden case; update(j, p, grad, m, scalars) does one.
template <class Update>
void expect_golden_updates(const char* name, const Update& update) {
  for (const auto& j : golden().at(name)) {
    at::ScalarType type = j.at("dtype") == "float64" ? at::kDouble : at::kFloat;
    double tolerance = type == at::kDouble ? 1e-14 : 1e-6;
    auto tensor = [&](const nlohmann::json& values) {
      return at::tensor(values.get<std::vector<double>>(), at::kDouble).to(type);
    };
    Tensor p = tensor(j.at("start")), m = j.at("m").is_null() ? Tensor() : at::zeros_like(p);
    for (size_t step = 0; step < j.at("grads").size(); ++step) {
      update(j, p, tensor(j.at("grads")[step]) * 8, m,
             UpdateScalars{scalar(j.at("lr")), scalar(0.125), scalar(static_cast<double>(step + 1)),
                           scalar(1)});
      EXPECT_LE(relative(p, tensor(j.at("params")[step])), tolerance)
          << name << ", update " << step + 1;
    }
    if (m.defined()) { EXPECT_LE(relative(m, tensor(j.at("m"))), tolerance) << name; }
  }
}

TEST(Adam, WithCoupledDecayEqualsPyTorch) {
  Tensor v;
  expect_golden_updates("adam", [&](const auto& j, Tensor& p, const Tensor& grad, Tensor& m,
                                    const UpdateScalars& scalars) {
    if (scalars.step.template item<double>() == 1) v = at::zeros_like(p);
    adamw(
        p, grad, m, v,
        {j.at("betas")[0], j.at("betas")[1], 1e-8, 0, j.at("weight_decay").template get<double>()},
        scalars);
  });
}

TEST(Adam, WithoutBiasCorrectionTakesTheMomentsAsTheyAre) {
  Tensor p = at::full({1}, 1.0, at::kDouble), m = at::zeros_like(p), v = at::zeros_like(p);
  adamw(p, at::full({1}, 2.0, at::kDouble), m, v, {0.9, 0.99, 0.5, 0, 0, 0},
        {scalar(0.1), scalar(1), scalar(1), scalar(1)});
  // m = 0.2, v = 0.04: 1 - 0.1 * 0.2 / (0.2 + 0.5)
  EXPECT_NEAR(p.item<double>(), 1 - 0.02 / 0.7, 1e-15);
}

TEST(Sgd, EqualsPyTorch) {
  expect_golden_updates("sgd", [](const auto& j, Tensor& p, const Tensor& grad, Tensor& m,
                                  const UpdateScalars& scalars) {
    bool nesterov = j.contains("nesterov");
    sgd(p, grad, m,
        {.momentum = j.at("momentum"),
         .dampening = j.value("dampening", 0.0),
         .weight_decay = j.at("weight_decay"),
         .nesterov = nesterov ? Nesterov::kYes : Nesterov::kNo},
        scalars);
  });
}

TEST(Lion, EqualsItsPaper) {
  expect_golden_updates("lion", [](const auto& j, Tensor& p, const Tensor& grad, Tensor& m,
                                   const UpdateScalars& scalars) {
    lion(p, grad, m,
         {j.at("betas")[0], j.at("betas")[1], j.at("weight_decay").template get<double>()},
         scalars);
  });
}

TEST(OneMoment, ChangesNothingWhereTheGradientIsNotFinite) {
  Tensor p = at::randn({9}), m = at::randn({9}), p0 = p.clone(), m0 = m.clone();
  Tensor grad = at::full({9}, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
  UpdateScalars scalars{scalar(1), scalar(1), scalar(1), scalar(0)};
  sgd(p, grad, m, {.momentum = 0.9}, scalars);
  lion(p, grad, m, {0.9, 0.99}, scalars);
  EXPECT_TRUE(p.equal(p0) && m.equal(m0));
}

TEST(OneMoment, WorksOnManyBlocksAsOnOne) {
  Tensor p = at::randn({200003}), m = at::zeros_like(p), grad = at::randn({200003});
  Tensor p1 = p.clone(), m1 = m.clone();
  UpdateScalars scalars{scalar(1e-2), scalar(1), scalar(1), scalar(1)};
  sgd(p, grad, m, {.momentum = 0.9}, scalars);
  EXPECT_LE(relative(p, p1 - 1e-2 * grad), 1e-6);
  lion(p1, grad, m1, {0.9, 0.99}, scalars);
  EXPECT_LE(relative(m1, grad * 0.01), 1e-6);
}

TEST(Muon, EqualsNumpy) {
  auto alone = self_communicator();
  for (const auto& j : golden().at("muon")) {
    auto tensor = [&](const nlohmann::json& values) {
      return at::tensor(values.get<std::vector<double>>(), at::kDouble);
    };
    ParamBuffer buffer(
        "layers.0.decay.split", {{.name = "layers.0.weight", .shape = j.at("shape"), .tp_dim = 0}},
        {.shard = alone.get(), .sum = {}}, {.dtypes = {at::kDouble, at::kDouble, at::kDouble}});
    OptimizerConfig config{.kind = OptimizerKind::kMuon, .weight_decay = j.at("weight_decay")};
    config.momentum = j.at("momentum");
    Muon muon(config, {&buffer}, *alone);
    buffer.master().copy_(tensor(j.at("start")));
    for (size_t step = 0; step < j.at("grads").size(); ++step) {
      buffer.grad().copy_(tensor(j.at("grads")[step]) * 8);
      muon.step(
          {scalar(j.at("lr")), scalar(0.125), scalar(static_cast<double>(step + 1)), scalar(1)});
      EXPECT_LE(relative(buffer.master(), tensor(j.at("params")[step])), 1e-13)
          << "update " << step;
    }
    EXPECT_LE(relative(muon.state(0)[0].second, tensor(j.at("m"))), 1e-14);
  }
}

TEST(Muon, MakesSingularValuesOfAboutOne) {
  Tensor step = orthogonalized(at::randn({40, 12}, at::kDouble));
  Tensor values = at::linalg_svdvals(step);
  EXPECT_GT(values.min().item<double>(), 0.6);
  EXPECT_LT(values.max().item<double>(), 1.3);
}

TEST(Muon, MakesNearlyTheSameOfFloatOnAGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  Tensor matrix = at::randn({1024, 256}, at::kFloat), want = orthogonalized(matrix);
  Tensor step = orthogonalized(matrix.cuda());
  EXPECT_EQ(step.scalar_type(), at::kFloat);
  EXPECT_LE(relative(step.cpu(), want), 0.05);  // products in bf16: 0.011 on a CPU
}

TEST(Muon, TakesEachMatrixOfAStackByItself) {
  Tensor stack = at::randn({3, 8, 20}, at::kDouble), steps = orthogonalized(stack);
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(steps[i].equal(orthogonalized(stack[i])));
}

// A step of one micro-batch that gives the buffer's only parameter this gradient.
void backward(ParamBuffer& buffer, const Tensor& gradient) {
  buffer.begin_step();
  buffer.before_backward(true);
  (buffer.param(0) * gradient).sum().backward();
  buffer.after_backward();
  buffer.finish_sync();
}

// Each rank with gradients of its own: summed until the freeze, then sent as signs.
void one_bit_rank(const nlohmann::json& j, Communicator& world) {
  auto tensor = [&](const nlohmann::json& values) {
    return at::tensor(values.get<std::vector<double>>(), at::kDouble);
  };
  Mesh mesh({.replicate = world.size()}, world);
  Tensor start = tensor(j.at("start"));
  ParamBuffer buffer("b", {{.name = "w", .shape = {start.numel()}, .tp_dim = {}}},
                     {.shard = &mesh.shard(), .sum = {&mesh.replicate()}, .copies = world.size()},
                     {.dtypes = {at::kDouble, at::kDouble, at::kDouble}});
  OptimizerConfig config{.kind = OptimizerKind::kOneBitAdam};
  config.beta1 = j.at("beta1"), config.beta2 = j.at("beta2"), config.eps = j.at("eps");
  config.weight_decay = j.at("weight_decay"), config.freeze_step = j.at("freeze_step");
  OneBitAdam adam(config, {&buffer}, mesh);
  buffer.master().copy_(start);
  for (size_t step = 0; step < j.at("grads").size(); ++step) {
    backward(buffer, tensor(j.at("grads")[step][static_cast<size_t>(world.rank())]));
    adam.step({scalar(j.at("lr")), scalar(1), scalar(static_cast<double>(step + 1)), scalar(1)});
    EXPECT_LE(relative(buffer.master(), tensor(j.at("params")[step])), 1e-13)
        << world.size() << " ranks, update " << step + 1;
  }
  EXPECT_LE(relative(adam.state(0)[0].second, tensor(j.at("m"))), 1e-13);
}

TEST(OneBitAdam, EqualsNumpyOfTheSameRanks) {
  at::set_num_threads(1);
  for (const auto& j : golden().at("one_bit"))
    run_thread_ranks(j.at("ranks"), [&](Communicator& world, Control&) { one_bit_rank(j, world); });
}

TEST(OneBitAdam, RefusesStateInChunks) {
  run_thread_ranks(2, [](Communicator& world, Control&) {
    Mesh mesh({.shard = 2}, world);
    EXPECT_THROW(OneBitAdam({.kind = OptimizerKind::kOneBitAdam}, {}, mesh), Error);
  });
}

using Strings = std::vector<std::string>;

// The first of two ranks tells of its sums; the other's gradients are 0.
class Teller : public Communicator {
 public:
  explicit Teller(Strings& log) : log_(log) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(Tensor& t, Op) override { log_.push_back(concat("sum of ", t.numel())); }
  void reduce_scatter(const Tensor&, Tensor& mine) override {
    log_.push_back(concat("scatter of ", mine.numel()));
  }
  void all_gather(const Tensor&, Tensor&) override {}
  void broadcast(Tensor&, int) override {}
  void exchange(std::span<Transfer>) override {}
  std::unique_ptr<Communicator> split(int, const std::string&) override { return nullptr; }
  void abort(const std::string&) override {}

 private:
  Strings& log_;
};

TEST(Sync, BeginsWhileBackwardGoesOn) {
  Strings log;
  Teller shard(log), replicas(log), stages(log);
  Sharing sharing{.shard = &shard, .sum = {&replicas}, .sum_at_end = {&stages}};
  auto buffer = [&](const char* name, int64_t n) {
    return std::make_unique<ParamBuffer>(
        name, std::vector<ParamSpec>{{.name = name, .shape = {n}, .tp_dim = {}}}, sharing,
        BufferOptions{});
  };
  auto first = buffer("first", 17), second = buffer("second", 1);
  first->param(0).register_hook([&](const Tensor&) { log.push_back("gradient of the first"); });
  for (bool last : {false, true}) {
    first->before_backward(last), second->before_backward(last);
    (first->param(0) * 2 * second->param(0)).sum().backward();
    first->after_backward(), second->after_backward();
  }
  first->finish_sync(), second->finish_sync();
  EXPECT_EQ(log,
            (Strings{"gradient of the first", "scatter of 8", "sum of 8", "gradient of the first",
                     "scatter of 16", "sum of 16", "sum of 16", "sum of 8"}));
}

TEST(WholeTensors, HaveOneOwnerEach) {
  at::set_num_threads(1);
  run_thread_ranks(3, [&](Communicator& world, Control&) {
    std::vector<ParamSpec> specs;
    for (int64_t rows : {5, 7, 3, 2}) specs.push_back({concat("layers.0.", rows), {rows, 4}, 0});
    ParamBuffer buffer("layers.0.decay.split", specs, {.shard = &world, .sum = {}},
                       {.chunking = Chunking::kWholeTensors});
    EXPECT_EQ(buffer.chunk_size(), 32);  // 28 in whole units
    Tensor rows = at::zeros({1}, at::kDouble);
    for (const Placement& p : buffer.placements()) {
      EXPECT_EQ(p.box.extent, p.shape);
      rows += p.shape[0];
    }
    world.all_reduce(rows);
    EXPECT_EQ(rows.item<double>(), 17);
  });
}

// Of three layers of four matrices each of twelve ranks owns one.
TEST(WholeTensors, OfAllLayersAreSharedOutOverAllRanks) {
  run_thread_ranks(12, [&](Communicator& world, Control&) {
    std::vector<int64_t> owned;
    for (int64_t layer = 0; layer < 3; ++layer) {
      std::vector<ParamSpec> specs;
      for (int64_t rows : {48, 16, 64, 63})
        specs.push_back({concat("layers.", layer, ".", rows), {rows, 16}, 0});
      ParamBuffer buffer("decay.split", specs, {.shard = &world, .sum = {}},
                         {.chunking = Chunking::kWholeTensors, .owned = owned});
      owned = buffer.owned();
      EXPECT_EQ(buffer.memory().params, 4 * ((48 + 16 + 64 + 63) * 16 + 8 * 8));  // 8 own a unit
      EXPECT_EQ(buffer.memory().grads, buffer.memory().params);
    }
    EXPECT_EQ(std::ranges::min(owned), 16 * 16);
    EXPECT_EQ(std::ranges::max(owned), 64 * 16);
  });
}

struct Chain {  // the same in ATen, an operation at a time
  Tensor p, m, v;
  void step(const Tensor& grad, const AdamWConstants& c, double lr, double t) {
    m = m * c.beta1 + grad * (1 - c.beta1);
    v = v * c.beta2 + grad * grad * (1 - c.beta2);
    Tensor root = (v / (1 - std::pow(c.beta2, t))).sqrt() + c.eps;
    p = p * (1 - lr * c.weight_decay) - m / (1 - std::pow(c.beta1, t)) / root * lr;
  }
};

TEST(AdamW, EqualsAnAtenChainOnTensorsOfManyBlocks) {
  for (at::ScalarType type : {at::kDouble, at::kFloat}) {
    Tensor p = at::randn({200003}, type), m = at::zeros_like(p), v = at::zeros_like(p);
    Chain chain{p.clone(), m.clone(), v.clone()};
    AdamWConstants c{0.9, 0.999, 1e-8, 0.01};
    for (int t = 1; t <= 3; ++t) {
      Tensor grad = at::randn({200003}, type);
      adamw(p, grad, m, v, c, {scalar(1e-2), scalar(1), scalar(t), scalar(1)});
      chain.step(grad, c, 1e-2, t);
    }
    double tolerance = type == at::kDouble ? 1e-14 : 1e-6;
    EXPECT_LE(relative(p, chain.p), tolerance);
    EXPECT_LE(relative(m, chain.m), tolerance);
    EXPECT_LE(relative(v, chain.v), tolerance);
  }
}

TEST(AdamW, ChangesNothingWhereTheGradientIsNotFinite) {
  Tensor p = at::randn({9}), m = at::randn({9}), v = at::randn({9}).square();
  Tensor p0 = p.clone(), m0 = m.clone(), v0 = v.clone();
  Tensor grad = at::full({9}, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
  adamw(p, grad, m, v, {0.9, 0.95, 1e-8, 0.1}, {scalar(1), scalar(1), scalar(1), scalar(0)});
  EXPECT_TRUE(p.equal(p0) && m.equal(m0) && v.equal(v0));
}

TEST(AdamW, RefusesTypesThatItHasNoKernelFor) {
  Tensor p = at::randn({3}), m = at::zeros_like(p), v = at::zeros_like(p);
  UpdateScalars scalars{scalar(1), scalar(1), scalar(1), scalar(1)};
  EXPECT_THROW(adamw(p, p.to(at::kDouble), m, v, {}, scalars), Error);
  Tensor half = p.to(at::kHalf);
  EXPECT_THROW(adamw(half, half, half, half, {}, scalars), Error);
}

}  // namespace
}  // namespace neox
