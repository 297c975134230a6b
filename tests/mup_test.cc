// muP: initial values and learning rates of each parameter against Microsoft's package
// (tests/oracle/mup_shapes.py); that what is learnt does not grow with the width. That the model
// computes as a decoder in PyTorch with its multipliers is a case of model_test.cc.
#include <ATen/ops/randn_like.h>

#include <algorithm>

#include "base/error.h"
#include "convert/model_files.h"
#include "model_cases.h"
#include "optim/optimizer.h"

namespace neox {
namespace {

nlohmann::json golden() { return read_golden("mup.json"); }

Tensor number(double x) { return at::full({}, x, at::kDouble); }

// The initial values of the golden case with one method for all weights.
class Initial {
 public:
  Initial(const ModelConfig& config, InitMethod method)
      : world_(self_communicator()),
        mesh_({}, *world_),
        model_(with(config, method), mesh_, {.dtypes = kAll64}) {}
  const Tensor& operator[](const std::string& name) const { return model_.param(name); }

 private:
  static ModelConfig with(ModelConfig config, InitMethod method) {
    config.init_method = config.output_init_method = method;
    return config;
  }
  std::unique_ptr<Communicator> world_;
  Mesh mesh_;
  GptNeoX model_;
};

TEST(Mup, StartsWithTheDeviationsOfItsPackage) {
  using enum InitMethod;
  const std::map<std::string, InitMethod> methods = {{"normal", kNormal},
                                                     {"scaled_normal", kScaledNormal},
                                                     {"small_init", kSmallInit},
                                                     {"wang_init", kWangInit},
                                                     {"xavier_normal", kXavierNormal},
                                                     {"xavier_uniform", kXavierUniform}};
  nlohmann::json file = golden(), all = file.at("deviations");
  ModelConfig wide = model_case(file.at("case")).config, plain = wide;
  wide.init_std = file.at("init_std");
  wide.mup->init_scale = file.at("init_scale");
  plain.mup.reset();
  plain.init_std = 1;
  Initial normal(plain, kNormal), uniform(plain, kXavierUniform);
  ASSERT_EQ(all.size(), methods.size());
  for (const auto& [name, method] : methods) {
    Initial values(wide, method);
    for (const auto& [param, want] : all.at(name).items()) {
      // The same numbers before they are scaled: from N(0, 1), or from [-1, 1).
      Tensor of = method == kXavierUniform ? uniform[param] : normal[param];
      double sides = static_cast<double>(of.size(0) + of.size(1)),
             unit = method == kXavierUniform ? std::sqrt(6 / sides) : 1;
      Tensor got = values[param], wanted = of * (want.get<double>() / unit);
      EXPECT_LE(relative_distance(got, wanted), 1e-6) << name << " " << param;
    }
  }
}

// One step from p with gradients g, of which Adam's first step takes the signs.
void expect_step(const nlohmann::json& rates, OptimizerKind kind) {
  constexpr double kLr = 0.125, kDecay = 0.25;
  ModelCase c = model_case(golden().at("case"));
  ModelRun run(c, {.dtypes = kAll64});
  OptimizerConfig config{.kind = kind, .eps = 1e-300, .weight_decay = kDecay};
  config.width = c.config.mup->width;
  Tensors before = run.parameters(), gradients;
  auto optimizer = make_optimizer(config, run.model().buffers(), run.model().mesh());
  at::manual_seed(1);
  for (ParamBuffer* buffer : run.model().buffers()) {
    buffer->begin_step();
    buffer->grad().copy_(at::randn_like(buffer->grad()));
  }
  gradients = run.gradients();
  optimizer->step({number(kLr), number(1), number(1), number(1)});
  Tensors after = run.parameters();
  EXPECT_EQ(after.size(), rates.size());
  for (const auto& [name, p] : before) {
    double lr = kLr * rates.at(name).at("lr").get<double>(),
           decay = p.dim() == 2 ? kDecay * rates.at(name).at("weight_decay").get<double>() : 0;
    Tensor g = gradients.at(name), step = kind == OptimizerKind::kSgd ? g : g.sign();
    EXPECT_LE(relative_distance(after.at(name) - p, -lr * (step + decay * p)), 1e-9) << name;
  }
}

TEST(Mup, StepsWithTheRatesOfItsPackage) {
  nlohmann::json file = golden();
  expect_step(file.at("adam"), OptimizerKind::kAdam);
  expect_step(file.at("sgd"), OptimizerKind::kSgd);
}

// How far four steps of Adam move the logits of a model of this width, on average.
double moved(int64_t hidden, std::optional<MupConfig> mup) {
  ModelCase c{.name = "width", .config = model_case(golden().at("case")).config, .batch = 4};
  c.config.hidden = hidden;
  c.config.intermediate = 4 * hidden;
  c.config.init_method = c.config.output_init_method = InitMethod::kSmallInit;
  c.config.mup = mup;
  Initial start(c.config, InitMethod::kSmallInit);
  ModelRun run(c, {.dtypes = kAll32});
  run.load([&](const std::string& name, const Dims&) { return start[name]; });
  Tensor tokens = made_up_tokens(c, 9).narrow(1, 0, c.config.seq).contiguous();
  Tensor before = run.logits(tokens, 1, 1);
  Config config;
  config.optimizer = {.lr = 0.005, .beta2 = 0.95, .weight_decay = 0};
  config.schedule = {.decay = LrDecay::kConstant, .lr = 0.005};
  config.train.iters = 4;
  run.train(config, [&](int64_t step) { return made_up_tokens(c, step); });
  return (run.logits(tokens, 1, 1) - before).abs().mean().item<double>();
}

TEST(Mup, MovesTheLogitsAlikeAtAnyWidth) {
  at::set_num_threads(1);
  auto with = [](int64_t hidden) {
    return moved(hidden, MupConfig{.width = static_cast<double>(hidden) / 32});
  };
  double narrow = moved(32, std::nullopt), wide = moved(512, std::nullopt);
  double narrow_mup = with(32), wide_mup = with(512);
  std::cout << "moved " << narrow << " at 32, " << wide << " at 512; with muP " << narrow_mup
            << ", " << wide_mup << "\n";
  EXPECT_GT(wide / narrow, 4);
  EXPECT_NEAR(wide_mup / narrow_mup, 1, 0.5);
}

// The logits of a model, and of the one without muP that other formats get.
void expect_same_folded(const ModelConfig& config) {
  ModelCase c{.name = "folded", .config = config, .batch = 2};
  Tensor tokens = made_up_tokens(c, 0).narrow(1, 0, config.seq).contiguous();
  ModelRun with(c, {.dtypes = kAll64});
  Tensors parameters = with.parameters();
  ModelFiles files{.where = "a run"};
  files.config.model = config;
  for (const auto& [name, t] : parameters)
    files.tensors.push_back(
        {.info = {name, at::kDouble, t.sizes().vec()}, .read = [t = t] { return t; }});
  fold_multipliers(files);
  EXPECT_FALSE(files.config.model.mup);
  ModelCase plain = c;
  plain.config = files.config.model;
  ModelRun without(plain, {.dtypes = kAll64});
  without.load([&](const std::string& name, const Dims&) {
    return std::ranges::find(files.tensors, name, [](auto& t) { return t.info.name; })->read();
  });
  Tensor want = with.logits(tokens, 1, 1);
  EXPECT_GT(want.abs().max().item<double>(), 0.1);
  EXPECT_LE(relative_distance(without.logits(tokens, 1, 1), want), 1e-12);
  for (const ModelTensor& t : files.tensors) {
    Tensor before = parameters.at(t.info.name);
    EXPECT_EQ(t.note.empty(), t.read().equal(before)) << t.info.name << " " << t.note;
  }
}

TEST(Mup, MultipliersBecomeFactorsOfTheWeightsOfOtherFormats) {
  ModelConfig config = model_case(golden().at("case")).config;
  config.mup = MupConfig{.width = 3,
                         .score_temperature = 0.07,
                         .logit_temperature = 0.2,
                         .embedding = 3,
                         .positions = 0.25};
  expect_same_folded(config);
  config.tied_embedding = true;
  config.position_embedding = PositionEmbedding::kRotary;
  expect_same_folded(config);
  config.qk_norm = true;
  config.norm = Norm::kRmsNorm;
  expect_same_folded(config);
  config.norm_weights = NormWeights::kOne;
  expect_same_folded(config);
  config.norm_weights = NormWeights::kNone;
  EXPECT_THROW(expect_same_folded(config), Error);
  config.norm_weights = NormWeights::kEach;
  config.position_embedding = PositionEmbedding::kSinusoidal;
  EXPECT_THROW(expect_same_folded(config), Error);
}

}  // namespace
}  // namespace neox
