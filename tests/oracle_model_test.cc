// GptNeoX against transformers' GPTNeoXForCausalLM and a PyTorch training loop, tensor by tensor:
// reads what `tests/oracle/model.py --live DIR` wrote into the directory named by NEOX_ORACLE_DIR.
#include <cstdlib>

#include "model_cases.h"
#include "tensors.h"

namespace neox {
namespace {

struct Kind {
  const char* name;
  Dtypes dtypes;
  double model;              // greatest ||a - b|| / ||b|| of logits, loss, a gradient
  double trajectory_loss;    // of a loss of 50 steps
  double trajectory_params;  // of a parameter after them
};

const Kind kFp64{"fp64", kAll64, 1e-9, 1e-9, 1e-9}, kFp32{"fp32", kAll32, 1e-5, 1e-4, 1e-4},
    kBf16{"bf16", kHalf16, 0, 2e-3, 4e-2},
    kFp16{"fp16", {at::kHalf, at::kFloat, at::kFloat}, 0, 5e-4, 3e-2};

class Live : public testing::TestWithParam<std::tuple<const char*, const Kind*>> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    if (std::getenv("NEOX_ORACLE_DIR") == nullptr)
      GTEST_SKIP() << "NEOX_ORACLE_DIR names no directory written by tests/oracle/model.py --live";
  }
  const Kind& kind() const { return *std::get<1>(GetParam()); }
  TensorFile file(const std::string& suffix) const {
    return read_safetensors(fs::path(std::getenv("NEOX_ORACLE_DIR")) /
                            (std::string(std::get<0>(GetParam())) + "." + kind().name + suffix));
  }
  static ModelCase case_of(const TensorFile& f) {
    return model_case(nlohmann::json::parse(f.metadata.at("case").get<std::string>()));
  }
  static void load(ModelRun& run, const TensorFile& f) {
    run.load([&](const std::string& name, const Dims&) { return f.at("weight/" + name); });
  }
  // Tensor by tensor, and none more or less.
  static Worst worst(const Tensors& got, const TensorFile& want, const std::string& prefix) {
    Worst worst;
    for (const auto& [name, t] : got) worst.add(name, relative_distance(t, want.at(prefix + name)));
    size_t wanted = 0;
    for (const auto& [name, t] : want.tensors) wanted += name.starts_with(prefix);
    EXPECT_EQ(got.size(), wanted);
    return worst;
  }
};

class LiveModel : public Live {};
class LiveTraining : public Live {};

TEST_P(LiveModel, LogitsLossAndEveryGradientEqualThoseOfTransformers) {
  TensorFile want = file(".safetensors");
  ModelCase c = case_of(want);
  ModelRun run(c, {.dtypes = kind().dtypes});
  load(run, want);
  Tensor tokens = want.at("tokens");
  double loss = std::abs(run.loss(batch_of(tokens)) / want.at("loss").item<double>() - 1);
  Worst gradient = worst(run.gradients(), want, "grad/");
  Tensor logits = run.logits(tokens.narrow(1, 0, c.config.seq).contiguous(), 1, 1);
  double apart = relative_distance(logits, want.at("logits"));
  std::cout << "logits " << apart << ", loss " << loss << ", gradient " << gradient.distance << " "
            << gradient.name << "\n";
  EXPECT_LE(apart, kind().model);
  EXPECT_LE(loss, kind().model);
  EXPECT_LE(gradient.distance, kind().model) << gradient.name;
}

TEST_P(LiveTraining, LossesAndParametersEqualThoseOfPyTorch) {
  TensorFile want = file(".trajectory.safetensors");
  ModelCase c = case_of(want);
  ModelRun run(c, {.dtypes = kind().dtypes});
  load(run, want);
  auto config = training(nlohmann::json::parse(want.metadata.at("training").get<std::string>()));
  if (&kind() == &kFp16) {
    config.precision.type = Precision::kFp16;
    config.precision.static_loss_scale = 1024;  // LOSS_SCALE there
  }
  auto reports = run.train(config, [&](int64_t step) { return want.at("tokens")[step]; });
  double loss = 0;
  for (size_t s = 0; s < reports.size(); ++s)
    loss = std::max(
        loss,
        std::abs(reports[s].loss / want.at("losses")[static_cast<int64_t>(s)].item<double>() - 1));
  Tensors params = run.parameters();
  if (&kind() != &kFp64) {  // rounding differs
    params = without_inert_rows(c, params);
    want.tensors = without_inert_rows(c, want.tensors);
  }
  Worst parameter = worst(params, want, "param/");
  std::cout << "loss " << loss << ", parameter " << parameter.distance << " " << parameter.name
            << "\n";
  EXPECT_EQ(reports.size(), 50u);
  EXPECT_LE(loss, kind().trajectory_loss);
  EXPECT_LE(parameter.distance, kind().trajectory_params) << parameter.name;
}

const auto name_of = [](const auto& info) {
  return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param)->name;
};
const auto kCases =
    testing::Values("head32", "head64", "head80", "gpt2", "llama", "llama3", "mistral", "alibi",
                    "qk_norm", "qk_layernorm", "sinusoidal", "rpe", "experts", "sinkhorn",
                    "sinkhorn_2", "normalized", "softsign", "mish", "swish", "bilinear", "glu");
INSTANTIATE_TEST_SUITE_P(All, LiveModel, testing::Combine(kCases, testing::Values(&kFp64, &kFp32)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(All, LiveTraining,
                         testing::Combine(kCases, testing::Values(&kFp64, &kFp32, &kBf16, &kFp16)),
                         name_of);

}  // namespace
}  // namespace neox
