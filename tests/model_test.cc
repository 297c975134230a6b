// GptNeoX against transformers' GPTNeoXForCausalLM and a PyTorch training loop, by the sketches
// that tests/oracle/model.py keeps in tests/golden.
#include <ATen/ops/arange.h>

#include <set>

#include "config/architecture.h"
#include "model_cases.h"

namespace neox {
namespace {

struct Kind {
  const char* name;
  Dtypes dtypes;
  double model, trajectory;  // greatest ||a - b|| / ||b|| of a tensor
};

// The golden values are of x86-64. Rotations are sines and cosines that ATen takes in float, of
// which some have another last bit elsewhere.
#if defined(__x86_64__)
constexpr double kModel = 1e-9, kTrajectory = 1e-9;
#else
constexpr double kModel = 1e-7, kTrajectory = 1e-6;
#endif
const Kind kFp64{"fp64", kAll64, kModel, kTrajectory}, kFp32{"fp32", kAll32, 1e-5, 1e-4};

class Golden : public testing::TestWithParam<std::tuple<int, const Kind*>> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  static nlohmann::json golden(const std::string& file) { return read_golden(file); }
  nlohmann::json of(const nlohmann::json& file) const {
    return file.at("cases").at(static_cast<size_t>(std::get<0>(GetParam())));
  }
  const Kind& kind() const { return *std::get<1>(GetParam()); }
  // Tensor by tensor, and none more or less.
  static Worst worst(const Tensors& got, const nlohmann::json& want) {
    Worst worst;
    for (const auto& [name, t] : got)
      worst.add(name, want.contains(name)
                          ? relative_distance(sketch(name, t), want.at(name).get<Sketch>())
                          : std::numeric_limits<double>::infinity());
    EXPECT_EQ(got.size(), want.size());
    return worst;
  }
  void report(const char* what, double distance, const std::string& where = "") {
    std::cout << what << " " << distance << " " << where << "\n";
    RecordProperty(what, std::to_string(distance));
  }
};

TEST_P(Golden, LossAndEveryGradientEqualThoseOfTransformers) {
  nlohmann::json want = of(golden("model_sketches.json"));
  ModelCase c = model_case(want);
  ModelRun run(c, {.dtypes = kind().dtypes});
  double loss = run.loss(batch_of(made_up_tokens(c, 0)));
  want.at("sketches").erase("logits");
  Worst gradient = worst(run.gradients(), want.at("sketches"));
  report("gradient", gradient.distance, gradient.name);
  EXPECT_NEAR(loss / want.at("loss").get<double>(), 1, kind().model);
  EXPECT_LE(gradient.distance, kind().model) << gradient.name;
}

TEST_P(Golden, LogitsByTheCacheEqualThoseOfTransformers) {
  nlohmann::json want = of(golden("model_sketches.json"));
  ModelCase c = model_case(want);
  ModelRun run(c, {.dtypes = kind().dtypes});
  Tensor tokens = made_up_tokens(c, 0).narrow(1, 0, c.config.seq).contiguous();
  Tensor logits = run.logits(tokens, 1, 1);
  double distance =
      relative_distance(sketch("logits", logits), want.at("sketches").at("logits").get<Sketch>());
  report("logits", distance);
  EXPECT_LE(distance, kind().model);
  for (int64_t prompt : {int64_t{2}, c.config.seq / 2, c.config.seq - 1, c.config.seq}) {
    Tensor after_prompt = run.logits(tokens, prompt, 1);
    EXPECT_LE(relative_distance(after_prompt, logits.narrow(1, prompt - 1, after_prompt.size(1))),
              kind().model)
        << "prompt of " << prompt;
    Tensor last = run.logits(tokens, prompt, 3).select(1, -1);
    EXPECT_LE(relative_distance(last, logits.select(1, -1)), kind().model) << "chunks of 3";
  }
}

TEST_P(Golden, RecomputationChangesNothing) {
  ModelCase c = model_case(of(golden("model_sketches.json")));
  Batch batch = batch_of(made_up_tokens(c, 0));
  ModelRun plain(c, {.dtypes = kind().dtypes}),
      again(c, {.dtypes = kind().dtypes, .recompute_layers = 1});
  EXPECT_EQ(plain.loss(batch), again.loss(batch));
  Tensors other = again.gradients();
  for (const auto& [name, t] : plain.gradients()) EXPECT_TRUE(t.equal(other.at(name))) << name;
}

// The cases of two layers and more.
class GoldenTraining : public Golden {};

TEST_P(GoldenTraining, StepsEqualThoseOfPyTorch) {
  nlohmann::json file = golden("model_trajectory.json"), want = of(file);
  ModelCase c = model_case(want);
  ModelRun run(c, {.dtypes = kind().dtypes});
  auto reports = run.train(training(file.at("training")),
                           [&](int64_t step) { return made_up_tokens(c, step); });
  Worst loss;
  for (size_t s = 0; s < reports.size(); ++s) {
    loss.add("step " + std::to_string(s),
             std::abs(reports[s].loss / want.at("losses")[s].get<double>() - 1));
    loss.add("norm of step " + std::to_string(s),
             std::abs(reports[s].grad_norm / want.at("grad_norms")[s].get<double>() - 1));
    EXPECT_GT(reports[s].grad_norm, 1) << "clipping is idle";
  }
  Worst parameter = worst(without_inert_rows(c, run.parameters()), want.at("sketches"));
  report("loss", loss.distance, loss.name);
  report("parameter", parameter.distance, parameter.name);
  EXPECT_EQ(reports.size(), want.at("losses").size());
  EXPECT_LE(loss.distance, kind().trajectory) << loss.name;
  EXPECT_LE(parameter.distance, kind().trajectory) << parameter.name;
}

TEST_P(Golden, ParametersAreAsManyAsTheConfigurationSays) {
  ModelConfig config = model_case(of(golden("model_sketches.json"))).config;
  ParameterParts parts = parameter_parts(config);
  int64_t all = num_elements(embedding_param(config).spec.shape);
  for (int64_t l = 0; l < config.layers; ++l) {
    int64_t block = 0, whole = 0;
    for (const ModelParam& p : layer_params(config, l)) {
      block += num_elements(p.spec.shape);
      whole += p.spec.tp_dim ? 0 : num_elements(p.spec.shape);
    }
    const ParameterParts::Block& want = config.has_experts(l) ? parts.experts : parts.dense;
    EXPECT_EQ(block, want.all) << l;
    EXPECT_EQ(whole, want.whole) << l;
    all += block;
  }
  for (const auto& params :
       {position_params(config), distance_params(config), final_params(config)})
    for (const ModelParam& p : params) all += num_elements(p.spec.shape);
  EXPECT_EQ(all, num_parameters(config));
}

TEST(Architecture, DiffersWhereAnythingDiffers) {
  std::set<std::string> texts;
  nlohmann::json cases = read_golden("model_sketches.json").at("cases");
  for (const auto& j : cases) texts.insert(architecture(model_case(j).config));
  ModelConfig c = model_case(cases[0]).config;
  auto add = [&](auto change) {
    ModelConfig other = c;
    change(other);
    texts.insert(architecture(other));
  };
  add([](auto& o) { o.kv_heads = 1; });
  add([](auto& o) { o.window = 3; });
  add([](auto& o) { o.given_head_size = 16; });
  add([](auto& o) { o.norm = Norm::kRmsNorm; });
  add([](auto& o) { o.norm = Norm::kRmsNorm, o.norm_weights = NormWeights::kOne; });
  add([](auto& o) { o.norm_weights = NormWeights::kNone; });
  add([](auto& o) { o.gated = true; });
  add([](auto& o) { o.attention_bias = false; });
  add([](auto& o) { o.attention_bias = false, o.qkv_bias = true; });
  add([](auto& o) { o.mlp_bias = false; });
  add([](auto& o) { o.tied_norms = true; });
  add([](auto& o) { o.qk_norm = true; });
  add([](auto& o) { o.embedding_norm = true; });
  using S = RotaryScaling;
  constexpr RotaryKind kYarn = RotaryKind::kYarn;
  for (const S& scaling :
       {S{.factor = 2}, S{.factor = 2, .low_freq_factor = 2}, S{.factor = 2, .high_freq_factor = 5},
        S{.factor = 2, .original_positions = 9}, S{.kind = RotaryKind::kLinear, .factor = 2},
        S{.kind = kYarn, .factor = 2}, S{.kind = kYarn, .factor = 2, .beta_fast = 9},
        S{.kind = kYarn, .factor = 2, .beta_slow = 2},
        S{.kind = kYarn, .factor = 2, .truncate = false},
        S{.kind = kYarn, .factor = 2, .attention_factor = 2},
        S{.kind = kYarn, .factor = 2, .original_positions = 9}})
    add([&](auto& o) { o.rotary_scaling = scaling; });
  for (const MupConfig& mup :
       {MupConfig{}, MupConfig{.width = 2}, MupConfig{.score_temperature = 2},
        MupConfig{.embedding = 2}, MupConfig{.positions = 2}})
    add([&](auto& o) { o.mup = mup; });
  for (const MoeConfig& moe :
       {MoeConfig{.experts = 2}, MoeConfig{.experts = 3}, MoeConfig{.experts = 2, .top_k = 2},
        MoeConfig{.experts = 2, .interval = 2}, MoeConfig{.experts = 2, .intermediate = 8},
        MoeConfig{.experts = 2, .router = Router::kTopK},
        MoeConfig{.experts = 2, .top_k = 2, .normalized = true}})
    add([&](auto& o) { o.moe = moe; });
  EXPECT_EQ(texts.size(), cases.size() + 13 + 11 + 5 + 7);
  EXPECT_EQ(architecture(c),
            "2 layers, hidden 64, 2 heads, intermediate 256, vocabulary 96, untied embedding, "
            "parallel residual, rotary 0.25 base 10000, gelu (tanh), norm eps 1e-05");
}

// Where a router has no preference all tokens go to the same two experts of five.
TEST(ExpertLoad, OfAFewExpertsForAllTokensIsHowManyTimesAnEvenShare) {
  nlohmann::json cases = read_golden("model_trajectory.json"), want;
  for (const auto& j : cases.at("cases"))
    if (j.at("name") == "experts") want = j;
  ModelCase c = model_case(want);
  Config config = training(cases.at("training"));
  config.train.iters = 1;
  for (bool even : {false, true}) {
    ModelRun run(c, {.dtypes = kAll64});
    run.load([&](const std::string& name, const Dims& shape) {
      Tensor weight = made_up_weight(c, name, shape);
      return even && name.ends_with("router.weight") ? weight * 0 : weight;
    });
    auto reports = run.train(config, [&](int64_t step) { return made_up_tokens(c, step); });
    if (even)
      EXPECT_DOUBLE_EQ(reports[0].expert_load, 2.5);
    else
      EXPECT_TRUE(reports[0].expert_load > 1 && reports[0].expert_load < 2.5);
  }
}

// Of thousands of rows that add to one, against the same weights in double.
TEST(PositionTables, AddTheirGradientsInFloat) {
  at::set_num_threads(1);
  for (const char* embedding : {"rpe", "learned"}) {
    ModelCase c = model_case({{"name", "sums"},
                              {"layers", 1},
                              {"hidden", 32},
                              {"heads", 4},
                              {"seq", 512},
                              {"vocab", 64},
                              {"batch", 8},
                              {"activation", "gelu"},
                              {"pos_emb", embedding}});
    bool learned = c.config.position_embedding == PositionEmbedding::kLearned;
    Batch batch = batch_of(made_up_tokens(c, 0));
    if (learned) batch.positions = at::arange(c.config.seq, at::kLong).remainder(4).expand({8, -1});
    auto gradient = [&](const Dtypes& dtypes) {
      ModelRun run(c, {.dtypes = dtypes});
      run.load([&](const std::string& name, const Dims& shape) {
        return made_up_weight(c, name, shape).to(at::kBFloat16).to(at::kDouble);
      });
      run.loss(batch);
      return run.gradients().at(learned ? "embed_positions.weight"
                                        : "relative_attention_bias.weight");
    };
    EXPECT_LE(relative_distance(gradient(kHalf16), gradient(kAll64)), 0.02) << embedding;
  }
}

class GoldenBf16 : public testing::TestWithParam<int> {};

TEST_P(GoldenBf16, LossesFollowAPyTorchLoopWithMasterParameters) {
  at::set_num_threads(1);
  nlohmann::json file = read_golden("model_trajectory.json");
  nlohmann::json want = file.at("cases").at(static_cast<size_t>(GetParam()));
  ModelCase c = model_case(want);
  auto reports =
      ModelRun(c, {.dtypes = kHalf16}).train(training(file.at("training")), [&](int64_t step) {
        return made_up_tokens(c, step);
      });
  for (size_t s = 0; s < reports.size(); ++s)
    EXPECT_NEAR(reports[s].loss / want.at("bf16_losses")[s].get<double>(), 1, 5e-3) << s;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenBf16, testing::Range(0, 9));

const char* const kShapes[] = {"Head32", "Head64",     "Head80",   "Gpt2",      "Llama",  "Alibi",
                               "Mup",    "Experts",    "Sinkhorn", "Llama3",    "Linear", "Yarn",
                               "QkNorm", "Sinusoidal", "Relative", "MupLearned"};
const auto name_of = [](const auto& info) {
  return std::string(kShapes[std::get<0>(info.param)]) + "_" + std::get<1>(info.param)->name;
};
INSTANTIATE_TEST_SUITE_P(All, Golden,
                         testing::Combine(testing::Range(0, int{std::size(kShapes)}),
                                          testing::Values(&kFp64, &kFp32)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(All, GoldenTraining,
                         testing::Combine(testing::Range(0, 9), testing::Values(&kFp64, &kFp32)),
                         name_of);

}  // namespace
}  // namespace neox
