#include "train/diagnostics.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/error.h"
#include "model/parameters.h"
#include "ops/adamw.h"

namespace neox {
namespace {

using at::Tensor;

// States of chunks; the first as in checkpoints.
constexpr const char *kParam = "param", *kGradient = "gradient";
constexpr double kDecay = 0.99;  // of averages, as in GPT-NeoX

enum class Measure { kSquares, kZeros };

// A number of each parameter.
struct Column {
  std::string before, state, after;  // the metric: `before`, the parameter's name, `after`
  Measure measure;
};

std::vector<Column> columns(const DiagnosticsConfig& config, const std::set<std::string>& states) {
  std::vector<Column> all;
  if (config.gradient_norms) all.push_back({"gradient_norms/", kGradient, "", Measure::kSquares});
  if (config.gradient_zeros) all.push_back({"pct_grad_zeros/", kGradient, "", Measure::kZeros});
  if (config.parameter_norms) all.push_back({"parameter_norms/", kParam, "", Measure::kSquares});
  if (!config.optimizer_norms) return all;
  for (const std::string& state : states)
    if (state != kParam && state != kGradient)
      all.push_back({"optimizer_state_norms/", state, "_" + state, Measure::kSquares});
  return all;
}

Tensor measured(const Tensor& x, Measure measure) {
  return measure == Measure::kSquares ? sum_of_squares({{x}}) : (x == 0).sum().to(at::kDouble);
}

// Adds what is here of each parameter to its sum and its number of elements.
void add_chunk(const StateChunk& chunk, Measure measure, const std::vector<std::string>& names,
               double* sums, double* counts) {
  std::vector<Tensor> parts;
  for (const Placement& p : chunk.placements)
    parts.push_back(measured(chunk.data.narrow(0, p.offset, p.box.numel()), measure));
  if (parts.empty()) return;
  Tensor values = at::stack(parts).cpu();
  const auto* value = values.const_data_ptr<double>();
  for (const Placement& p : chunk.placements) {
    auto place = std::ranges::find(names, p.name) - names.begin();
    check(place < std::ssize(names), "the model has no parameter ", p.name);
    sums[place] += *value++;
    counts[place] += static_cast<double>(p.box.numel());
  }
}

double result(const Column& column, double sum, double count, double gradient_scale) {
  if (column.measure == Measure::kZeros) return 100 * sum / count;
  return std::sqrt(sum) * (column.state == kGradient ? gradient_scale : 1);
}

Tensor summed_over(Communicator& world, const Tensor& x, at::Device device) {
  Tensor all = x.to(device);
  world.all_reduce(all);
  return all.cpu();
}

at::Device device_of(const TrainStep& step) { return step.gradient_scale().device(); }

}  // namespace

TensorNorms::TensorNorms(const DiagnosticsConfig& config, const ModelConfig& model)
    : config_(config) {
  for (const ParamSpec& spec : parameters(model)) names_.push_back(spec.name);
}

Scalars TensorNorms::of(TrainStep& step, Communicator& world) const {
  at::NoGradGuard no_grad;
  std::vector<StateChunk> chunks = step.written();
  std::ranges::move(step.gradients(), std::back_inserter(chunks));
  std::set<std::string> states;
  for (const StateChunk& chunk : chunks) states.insert(chunk.state);
  std::vector<Column> wanted = columns(config_, states);
  int64_t C = std::ssize(wanted), N = std::ssize(names_);
  Tensor table = at::zeros({C, 2, N}, at::kDouble);  // sums, counts
  auto* at = table.mutable_data_ptr<double>();
  for (int64_t c = 0; c < C; ++c)
    for (const StateChunk& chunk : chunks)
      if (chunk.state == wanted[static_cast<size_t>(c)].state)
        add_chunk(chunk, wanted[static_cast<size_t>(c)].measure, names_, at + 2 * c * N,
                  at + (2 * c + 1) * N);
  table = summed_over(world, table, device_of(step));
  at = table.mutable_data_ptr<double>();
  double scale = step.gradient_scale().item<double>();
  Scalars scalars;
  for (const Column& column : wanted) {
    for (int64_t n = 0; n < N; ++n)
      if (double count = at[N + n]; count > 0)
        scalars.emplace_back(column.before + names_[static_cast<size_t>(n)] + column.after,
                             result(column, at[n], count, scale));
    at += 2 * N;
  }
  return scalars;
}

void GradientNoise::remember(TrainStep& step) {
  std::vector<StateChunk> gradients = step.gradients();
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Tensor& x = gradients[i].data;
    Tensor scaled = x.to(at::toOpMathType(x.scalar_type())) * step.gradient_scale();
    if (on_host_) scaled = scaled.cpu();
    added_ == 0 ? sums_.push_back(scaled) : void(sums_[i] += scaled);
  }
  Tensor square = step.gradient_norm().square();
  squares_ = added_ == 0 ? square : squares_ + square;
}

std::optional<double> GradientNoise::add(TrainStep& step, Communicator& world) {
  at::NoGradGuard no_grad;
  remember(step);
  if (++added_ < steps_) return std::nullopt;
  std::vector<WeightedSquares> sums;
  for (const Tensor& sum : sums_) sums.push_back({sum});
  auto n = static_cast<double>(steps_), small_batch = batch_, large_batch = n * small_batch;
  double small = squares_.item<double>() / n,
         large = summed_over(world, sum_of_squares(sums), device_of(step)).item<double>() / (n * n);
  sums_.clear();
  added_ = 0;
  if (!std::isfinite(small) || !std::isfinite(large)) return std::nullopt;
  auto average = [](double& of, double x) { of = kDecay * of + (1 - kDecay) * x; };
  average(noise_, (small - large) / (1 / small_batch - 1 / large_batch));
  average(signal_, (large_batch * large - small_batch * small) / (large_batch - small_batch));
  if (signal_ <= 0) return std::nullopt;
  return noise_ / signal_;
}

Diagnostics::Diagnostics(const TrainConfig& config, const ModelConfig& model, int64_t batch)
    : interval_(config.log_interval) {
  const DiagnosticsConfig& d = config.diagnostics;
  if (d.of_tensors()) norms_.emplace(d, model);
  if (d.noise_steps > 0) noise_.emplace(d.noise_steps, batch, d.noise_on_host);
}

Scalars Diagnostics::after(int64_t iteration, TrainStep& step, Communicator& world) {
  Scalars scalars;
  if (norms_ && iteration % interval_ == 0) scalars = norms_->of(step, world);
  if (noise_)
    if (auto scale = noise_->add(step, world)) scalars.emplace_back("train/noise_scale", *scale);
  return scalars;
}

}  // namespace neox
