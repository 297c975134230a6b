// Which parameters a rank of GptNeoX holds, in which buffers.
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "model/gpt_neox.h"
#include "ops/norm.h"

namespace neox {
namespace {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

// The split of n items into `parts` consecutive non-empty ranges for which the costs of the ranges,
// joined, are least; of equal ones, earlier ranges are the longer ones.
template <class Cost, class Join>
Ranges least_ranges(size_t n, size_t parts, const Cost& cost, const Join& join) {
  std::vector<std::vector<double>> best(
      parts + 1, std::vector<double>(n + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<size_t>> cut(parts + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t p = 1; p <= parts; ++p)
    for (size_t i = p; i <= n; ++i)
      for (size_t from = p - 1; from < i; ++from) {
        double joined = join(best[p - 1][from], cost(from, i));
        if (joined <= best[p][i]) best[p][i] = joined, cut[p][i] = from;
      }
  Ranges ranges(parts);
  for (size_t p = parts, to = n; p > 0; to = cut[p][to], --p)
    ranges[p - 1] = {static_cast<int64_t>(cut[p][to]), static_cast<int64_t>(to)};
  return ranges;
}

// The greatest sum of a range decides how fast a pipeline is; then, for memory, the sums are as
// equal as can be.
Ranges balanced(const std::vector<double>& costs, size_t parts) {
  std::vector<double> sum(costs.size() + 1, 0);
  for (size_t i = 0; i < costs.size(); ++i) sum[i + 1] = sum[i] + costs[i];
  auto total = [&](size_t from, size_t to) { return sum[to] - sum[from]; };
  double greatest = 0;
  auto greater = [](double a, double b) { return std::max(a, b); };
  for (auto [from, to] : least_ranges(costs.size(), parts, total, greater))
    greatest = std::max(greatest, total(static_cast<size_t>(from), static_cast<size_t>(to)));
  auto square = [&](size_t from, size_t to) {
    double x = total(from, to);
    return x <= greatest ? x * x : std::numeric_limits<double>::infinity();
  };
  return least_ranges(costs.size(), parts, square, std::plus<>());
}

std::shared_ptr<SideStream> tp_side(const ModelOptions& options) {
  return options.tp_side ? options.tp_side : std::make_shared<SideStream>(options.device);
}

// Those with weight decay, or those without.
std::vector<ModelParam> of_kind(std::vector<ModelParam> params, bool decay) {
  std::erase_if(params, [=](const ModelParam& p) { return p.spec.decay != decay; });
  return params;
}

}  // namespace

std::vector<std::pair<int64_t, int64_t>> partition_layers(const ModelConfig& c, int stages,
                                                          const std::string& method) {
  check_usage(stages <= c.layers, "pipe_parallel_size ", stages, " is more than the ", c.layers,
              " layers of the model: every stage needs a layer");
  std::vector<double> costs(static_cast<size_t>(c.layers), 1.0);
  if (method == "parameters") {
    auto table = static_cast<double>(c.vocab * c.hidden);
    for (size_t l = 0; l < costs.size(); ++l) {
      costs[l] = 0;
      for (const ModelParam& p : layer_params(c, static_cast<int64_t>(l)))
        costs[l] += static_cast<double>(num_elements(p.spec.shape));
    }
    costs.front() += table;
    costs.back() += table;
  }
  return balanced(costs, static_cast<size_t>(stages));
}

GptNeoX::GptNeoX(const ModelConfig& config, Mesh& mesh, const ModelOptions& options)
    : config_(config),
      mesh_(mesh),
      options_(options),
      tp_(mesh.tp(), tp_side(options)),
      sequence_(mesh.tp(), tp_side(options),
                options.recompute_layers > 0 || config.moe.has_value()) {
  check(config.vocab > 0, "the size of the vocabulary is not known");
  int64_t tp = mesh.tp().size();
  check_usage(config.heads % tp == 0, "model_parallel_size ", tp, " does not divide the ",
              config.heads, " attention heads");
  check_usage(config.groups() % tp == 0, "model_parallel_size ", tp, " does not divide the ",
              config.groups(), " heads of keys and values (num_kv_heads)");
  check_usage(!options.splits_tokens || config.seq % tp == 0, "model_parallel_size ", tp,
              " does not divide the ", config.seq, " tokens of a sample (sequence_parallel)");
  check_usage(!options.device.is_cuda() || config.hidden <= kMostColumnsOnGpus, "hidden_size is ",
              config.hidden, "; on GPUs it may be ", kMostColumnsOnGpus, " at most");
  auto stage = static_cast<size_t>(mesh.pp().rank());
  std::tie(first_layer_, last_layer_) =
      partition_layers(config, mesh.pp().size(), options.partition)[stage];
  if (!options_.side) options_.side = std::make_shared<SideStream>(options.device);
  add_buffers();
  add_position_tables();
  if (config.norm_weights == NormWeights::kNone)
    ones_ = at::ones({std::max(config.hidden, config.head_size())}, hidden_options());
}

void GptNeoX::add_position_tables() {
  using enum PositionEmbedding;
  const ModelConfig& c = config_;
  int64_t positions = std::max(c.positions, c.seq), tp = mesh_.tp().size();
  auto width = static_cast<int64_t>(static_cast<double>(c.head_size()) * c.rotary_pct);
  RotaryAngles angles{.rotary = c.position_embedding == kRotary ? width : 0,
                      .base = c.rotary_base,
                      .scaling = c.rotary_scaling};
  rotary_ = rotary_table(positions, angles, options_.device);
  if (c.position_embedding == kSinusoidal) {
    RotaryTable table = rotary_table(positions, {.rotary = c.hidden}, options_.device);
    sinusoids_ = at::cat({table.sin, table.cos}, 1).to(options_.dtypes.param);
  }
  if (c.position_embedding == kAlibi)
    slopes_ = alibi_slopes(c.heads)
                  .narrow(0, c.heads / tp * mesh_.tp().rank(), c.heads / tp)
                  .to(hidden_options())
                  .view({-1, 1, 1});
  score_rule_ = {.scale = c.score_scale(), .window = c.window < positions - 1 ? c.window : 0};
  if (slopes_.defined()) {
    Tensor slopes = slopes_.cpu().to(at::kDouble).contiguous();
    score_rule_.slopes.assign(slopes.const_data_ptr<double>(),
                              slopes.const_data_ptr<double>() + slopes.numel());
  }
}

void GptNeoX::add_buffers() {
  bool first = mesh_.first_stage(), last = mesh_.last_stage();
  add_buffer("vectors", vectors());  // published first, since the first layer waits for them
  if (first || (last && config_.tied_embedding))
    add_buffer("embed_in", {embedding_param(config_)},
               config_.tied_embedding ? &mesh_.pp_ends() : nullptr);
  add_buffer("relative_attention_bias", distance_params(config_), &mesh_.pp());
  if (first) add_buffer("embed_positions", position_params(config_));
  for (int64_t l = first_layer_; l < last_layer_; ++l) {
    add_buffer("layers." + std::to_string(l), of_kind(layer_params(config_, l), true));
    matrices_.push_back(params_.at(prefix(l) + "attention.dense.weight").first);
  }
  if (last) add_buffer("final", of_kind(final_params(config_), true));
}

// Norms and biases, few elements: of the whole stage together.
std::vector<ModelParam> GptNeoX::vectors() const {
  std::vector<ModelParam> all;
  auto add = [&](const std::vector<ModelParam>& params) {
    std::ranges::copy(of_kind(params, false), std::back_inserter(all));
  };
  if (mesh_.first_stage()) add(embedding_norm_params(config_));
  for (int64_t l = first_layer_; l < last_layer_; ++l) add(layer_params(config_, l));
  if (mesh_.last_stage()) add(final_params(config_));
  // Behind a single number others would not be aligned.
  std::ranges::stable_partition(all,
                                [](const ModelParam& p) { return num_elements(p.spec.shape) > 1; });
  return all;
}

// One buffer for each kind among the parameters. stages: those that hold them too, or null.
void GptNeoX::add_buffer(const std::string& name, const std::vector<ModelParam>& params,
                         Communicator* stages) {
  for (bool decay : {true, false}) {
    for (bool split : {true, false}) {
      std::vector<ParamSpec> specs;
      for (const ModelParam& p : params)
        if (p.spec.decay == decay && p.spec.tp_dim.has_value() == split) specs.push_back(p.spec);
      if (specs.empty()) continue;
      std::string full_name = name + (decay ? ".decay" : ".plain") + (split ? ".split" : "");
      BufferOptions options{options_.dtypes,
                            options_.device,
                            options_.keeping,
                            mesh_.tp().rank(),
                            mesh_.tp().size(),
                            options_.chunking,
                            matrices_.empty() ? std::vector<int64_t>{} : matrices_.back()->owned(),
                            options_.side};
      buffers_.push_back(
          std::make_unique<ParamBuffer>(full_name, specs, sharing(split, stages), options));
      ParamBuffer& buffer = *buffers_.back();
      bool score = specs.front().name == kScoreName;  // alone: its buffer holds heads
      if (score || options_.start == ModelOptions::kInitialValues) {
        initialize(buffer, params, config_, options_.seed);
        buffer.publish();
      }
      for (size_t i = 0; i < specs.size(); ++i) params_[specs[i].name] = {&buffer, i};
    }
  }
}

Sharing GptNeoX::sharing(bool split, Communicator* stages) const {
  Sharing s{.shard = &mesh_.shard(), .sum = {&mesh_.replicate()}};
  auto add_copies = [&](Communicator& group) {
    s.copy = s.copy * group.size() + group.rank();
    s.copies *= group.size();
  };
  add_copies(mesh_.replicate());
  if (!split) {
    s.sum_at_end.push_back(&mesh_.tp());  // TensorParallel leaves parts of their gradients
    add_copies(mesh_.tp());
  }
  if (stages) {
    s.sum_at_end.push_back(stages);
    add_copies(*stages);
  }
  return s;
}

std::vector<ParamBuffer*> GptNeoX::buffers() {
  std::vector<ParamBuffer*> all;
  for (auto& buffer : buffers_) all.push_back(buffer.get());
  return all;
}

}  // namespace neox
