// What a run measures of single tensors and of gradients from step to step.
#include "train/diagnostics.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tiny_run.h"

namespace neox {
namespace {

using Named = std::map<std::string, double>;

const DiagnosticsConfig kAllNorms{.gradient_norms = true,
                                  .gradient_zeros = true,
                                  .parameter_norms = true,
                                  .optimizer_norms = true};

struct Ranks {
  Layout layout;
  Keeping keeping = Keeping::kAll;
  OptimizerKind optimizer = OptimizerKind::kAdam;
  TinyOptions options() const {
    TinyOptions o;
    o.model.hidden_dropout = o.model.attention_dropout = 0;
    o.model.tied_embedding = true;
    o.keeping = keeping;
    o.optimizer.kind = optimizer;
    return o;
  }
};

const std::vector<Ranks> kRanks = {{{.tp = 2}},
                                   {{.pp = 3}},
                                   {{.replicate = 2}},
                                   {{.shard = 3}, Keeping::kParameters},
                                   {{.shard = 2, .tp = 2}, Keeping::kChunks},
                                   {{.pp = 2, .replicate = 2, .shard = 2, .tp = 2}}};

// The norms behind the second step, and the run.
std::pair<Named, TinyResult> norms_of(const Ranks& ranks) {
  TinyOptions options = ranks.options();
  Named norms;
  TensorNorms all(kAllNorms, options.model);
  int64_t steps = 0;
  options.after_step = [&](TrainStep& step, Communicator& world) {
    Scalars scalars = all.of(step, world);
    if (world.rank() == 0 && ++steps == 2) norms.insert(scalars.begin(), scalars.end());
  };
  TinyResult result = TinyRun(ranks.layout, options).train(0, 2);
  return {norms, result};
}

void expect_near(const Named& got, const Named& want, const std::string& where) {
  EXPECT_EQ(got.size(), want.size()) << where;
  for (const auto& [name, value] : want) {
    ASSERT_TRUE(got.contains(name)) << where << ": " << name;
    EXPECT_NEAR(got.at(name), value, 1e-11 * (1 + value)) << where << ": " << name;
  }
}

double norm_of(const at::Tensor& x) { return x.to(at::kDouble).norm().item<double>(); }

TEST(TensorNorms, AreThoseOfTheWholeTensors) {
  at::set_num_threads(1);
  for (OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kMuon}) {
    auto [norms, result] = norms_of({{}, Keeping::kAll, kind});
    size_t states = 0;
    for (const auto& [name, tensor] : result.state) {
      std::string state = name.substr(0, name.find('/')), param = name.substr(state.size() + 1);
      std::string metric = state == "param" ? "parameter_norms/" + param
                                            : "optimizer_state_norms/" + param + "_" + state;
      EXPECT_NEAR(norms.at(metric), norm_of(tensor), 1e-12 * (1 + norm_of(tensor))) << metric;
      ++states;
    }
    double squares = 0;
    size_t gradients = 0;
    for (const auto& [name, norm] : norms)
      if (name.starts_with("gradient_norms/")) squares += norm * norm, ++gradients;
    EXPECT_NEAR(std::sqrt(squares), result.steps[1].grad_norm, 1e-12);
    EXPECT_EQ(norms.size(), states + 2 * gradients);
  }
}

TEST(TensorNorms, CountZeros) {
  at::set_num_threads(1);
  Ranks one;
  TinyOptions options = one.options();
  options.model.tied_embedding = false;
  TensorNorms zeros({.gradient_zeros = true}, options.model);
  Named got;
  options.after_step = [&](TrainStep& step, Communicator& world) {
    Scalars scalars = zeros.of(step, world);
    got.insert(scalars.begin(), scalars.end());
  };
  options.masked = false;
  TinyRun run({}, options);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < options.batch; ++i)
    for (int64_t t = 0; t < options.model.seq; ++t)
      seen.insert(run.batch(0, i).tokens[0][t].item<int64_t>());
  run.train(0, 1);
  ASSERT_LT(std::ssize(seen), options.model.vocab);
  EXPECT_DOUBLE_EQ(got.at("pct_grad_zeros/embed_in.weight"),
                   100.0 * static_cast<double>(options.model.vocab - std::ssize(seen)) /
                       static_cast<double>(options.model.vocab));
  EXPECT_EQ(got.at("pct_grad_zeros/final_layer_norm.weight"), 0);
}

TEST(TensorNorms, DoNotDependOnTheLayout) {
  at::set_num_threads(1);
  Named want = norms_of({}).first;
  for (const Ranks& ranks : kRanks)
    expect_near(norms_of(ranks).first, want, to_string(ranks.layout));
}

// Estimates of a run of eight steps, of every two, and the gradients of the mean loss.
struct Noise {
  std::vector<std::optional<double>> estimates;
  std::vector<at::Tensor> gradients;
};

Noise noise_of(const Ranks& ranks, bool on_host = false, const TinyRun::Hook& begin = {}) {
  Noise noise;
  std::mutex mutex;
  std::map<Communicator*, GradientNoise> of_rank;
  TinyOptions options = ranks.options();
  options.after_step = [&](TrainStep& step, Communicator& world) {
    GradientNoise* mine;
    {
      std::lock_guard lock(mutex);
      mine = &of_rank.try_emplace(&world, 2, options.batch, on_host).first->second;
    }
    auto estimate = mine->add(step, world);
    if (world.rank() != 0) return;
    noise.estimates.push_back(estimate);
    std::vector<at::Tensor> all;
    for (const StateChunk& chunk : step.gradients())
      all.push_back(chunk.data * step.gradient_scale());
    noise.gradients.push_back(at::cat(all));
  };
  TinyRun(ranks.layout, options).train(0, 8, begin);
  return noise;
}

TEST(GradientNoise, IsTheQuotientOfTheAveragesOfThePaper) {
  at::set_num_threads(1);
  Noise noise = noise_of({});
  double B = 5, traces = 0, squares = 0;
  for (size_t i = 0; i < 8; i += 2) {
    EXPECT_EQ(noise.estimates[i], std::nullopt) << i;
    const at::Tensor &a = noise.gradients[i], &b = noise.gradients[i + 1];
    double small = (std::pow(norm_of(a), 2) + std::pow(norm_of(b), 2)) / 2,
           large = std::pow(norm_of((a + b) / 2), 2);
    traces = 0.99 * traces + 0.01 * (small - large) / (1 / B - 1 / (2 * B));
    squares = 0.99 * squares + 0.01 * (2 * B * large - B * small) / B;
    ASSERT_GT(squares, 0);
    ASSERT_TRUE(noise.estimates[i + 1]) << i;
    EXPECT_NEAR(*noise.estimates[i + 1], traces / squares, 1e-9 * traces / squares) << i;
  }
}

TEST(GradientNoise, DoesNotDependOnTheLayoutOrThePlace) {
  at::set_num_threads(1);
  auto want = noise_of({}).estimates;
  EXPECT_EQ(noise_of({}, true).estimates, want);
  for (const Ranks& ranks : kRanks) {
    auto got = noise_of(ranks).estimates;
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].has_value(), want[i].has_value()) << to_string(ranks.layout) << " " << i;
      if (want[i]) { EXPECT_NEAR(*got[i], *want[i], 1e-9 * *want[i]) << to_string(ranks.layout); }
    }
  }
}

TEST(GradientNoise, IsNotEstimatedFromStepsThatAreNotFinite) {
  at::set_num_threads(1);
  auto spoil = [](TrainStep& step, Control&) {
    for (StateChunk& chunk : step.owned())
      if (chunk.state == "param") chunk.data.fill_(std::numeric_limits<double>::infinity());
    step.publish();
  };
  for (const auto& estimate : noise_of({}, false, spoil).estimates)
    EXPECT_EQ(estimate, std::nullopt);
}

}  // namespace
}  // namespace neox
