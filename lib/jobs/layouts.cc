#include "jobs/layouts.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "config/batch.h"

namespace neox {
namespace {

// Of a GPU's peak, what whole steps of 70M to 2.8B get of an H200 (docs/performance.md: 45 to 58
// %).
constexpr double kOfPeak = 0.5;
// Of the work that is done meanwhile, behind which gradients are sent; and of that time what it
// costs all the same, since it takes a part of the memory's rate and of the multiprocessors.
constexpr double kBackward = 2.0 / 3, kBehind = 0.15;
// Times that differ by less are alike: of these the larger micro-batch is taken, whose kernels are
// fewer and larger, up to so many tokens, which occupy a GPU.
constexpr double kAlike = 1.005;
constexpr int64_t kEnoughTokens = 32768;
constexpr size_t kRows = 12;

// Of n ranks that share out `bytes` in a ring, what each sends.
double of_ring(double bytes, int64_t n) {
  return bytes * static_cast<double>(n - 1) / static_cast<double>(n);
}

// Bytes of the activations of a micro-batch.
double micro_bytes(const Config& config, const Estimate& e) {
  return static_cast<double>(e.batch.micro * rows_of_sample(config) * config.model.seq *
                             config.model.hidden * element_bytes(config.precision.type));
}

// Of the model's ends, embedding and head, those that the stage has that sends most: one in the
// middle, where there is one. It has as many fewer neighbours.
int64_t ends_of(const Config& config) { return std::max<int64_t>(0, 3 - config.layout.pipe); }

double times_micro(const Config& config, const Estimate& e, int64_t times) {
  return static_cast<double>(times * e.batch.accumulation) * micro_bytes(config, e);
}

// In a step, to the tensor-parallel ranks (docs/decisions/016, 018). Of each layer, or each half of
// one without parallel residual, the output is summed forward and the input's gradient backward,
// which sends all of it twice; where the ranks share out tokens, once each, and the input is
// gathered three times. Recomputation makes the former sum again. The ends have a sum each. What
// comes from other stages is gathered, unless the ranks share out tokens.
double tensor_bytes(const Config& config, const Estimate& e) {
  int64_t pipe = config.layout.pipe, layers = (config.model.layers + pipe - 1) / pipe,
          times = config.train.recompute        ? 6
                  : config.layout.splits_tokens ? 5
                                                : 4,
          halves = config.model.parallel_residual ? 1 : 2, ends = ends_of(config),
          gathered = config.layout.splits_tokens ? 0 : 2 - ends;
  return of_ring(times_micro(config, e, layers * halves * times + 2 * ends + gathered),
                 config.layout.tensor);
}

// To the next stage and the one before: each tensor-parallel rank sends its part.
double pipe_bytes(const Config& config, const Estimate& e) {
  return times_micro(config, e, 2 - ends_of(config)) / static_cast<double>(config.layout.tensor);
}

// Of an element of the gradients that are sent.
int64_t sent_bytes(const PrecisionConfig& precision) {
  const auto& sums = precision.gradient_sums;
  return sums ? element_bytes(*sums) : gradient_bytes(precision);
}

// To the data ranks: gradients are shared out, from ZeRO 2 on in each micro-batch, and weights
// gathered, in ZeRO 3 those of layers for each pass over them.
double data_bytes(const Config& config, const Estimate& e) {
  int64_t stage = config.layout.zero_stage, m = e.batch.accumulation,
          layers = e.blocks / (config.layout.pipe * config.layout.tensor), n = e.rank_parameters,
          gathered = stage == 3 ? 2 * m * layers + n - layers : n;
  int64_t size = element_bytes(config.precision.type), gradient = sent_bytes(config.precision);
  return of_ring(static_cast<double>(n * (stage >= 2 ? m : 1) * gradient +
                                     gathered * (stage == 0 ? gradient : size)),
                 e.data_ranks);
}

struct Sent {
  double bytes = 0, seconds = 0;
  bool in_node = true;
};

// What each of a group of ranks sends to the others, `apart` ranks from one to the next. What
// leaves a node goes through the network's parts of all its GPUs that are in the group.
Sent sent(double bytes, int64_t ranks, int64_t apart, const Gpus& gpus) {
  double link = bytes / (gpus.rates.link * 1e9);
  if (ranks * apart <= gpus.per_node) return {bytes, link, true};
  int64_t beside = std::clamp<int64_t>(gpus.per_node / apart, 1, ranks);
  double network = bytes / (gpus.rates.network * 1e9 * static_cast<double>(beside));
  return {bytes, std::max(link, network), false};
}

int64_t global_batch(const Config& config, int64_t world) {
  int64_t cell = config.layout.pipe * config.layout.tensor;
  return config.batch.global ? *config.batch.global
                             : plan_batch(config, std::max<int64_t>(1, world / cell)).global;
}

struct Trial {
  int64_t tensor, pipe, stage, micro;
  bool recompute, splits;
};

Config with(const Config& config, const Trial& c, int64_t batch) {
  Config changed = config;
  changed.layout.tensor = c.tensor;
  changed.layout.pipe = c.pipe;
  changed.layout.zero_stage = c.stage;
  changed.layout.splits_tokens = c.splits;
  changed.train.recompute = c.recompute;
  changed.batch = {.global = batch, .micro = c.micro, .accumulation = std::nullopt};
  return changed;
}

bool shares_out(const ModelConfig& m, int64_t tensor) {
  return m.heads % tensor == 0 && m.groups() % tensor == 0 && m.intermediate % tensor == 0;
}

std::vector<Trial> trials(const Config& config, const Gpus& gpus, int64_t batch) {
  std::vector<Trial> all;
  int64_t world = gpus.nodes * gpus.per_node, most_stage = most_zero_stage(config);
  for (int64_t tensor = 1; tensor <= gpus.per_node; tensor *= 2) {
    bool can_split = tensor > 1 && config.model.seq % tensor == 0;
    for (int64_t pipe = 1; pipe <= std::min(config.model.layers, world / tensor); ++pipe) {
      if (world % (tensor * pipe) != 0 || config.model.layers % pipe != 0) continue;
      if (gpus.per_node % tensor != 0 || !shares_out(config.model, tensor)) continue;
      int64_t data = world / tensor / pipe, least = data > 1 ? std::min<int64_t>(1, most_stage) : 0;
      for (int64_t stage = least; stage <= (data > 1 ? most_stage : 0); ++stage)
        for (int64_t micro = 1; micro <= 64 && micro * data <= batch; micro *= 2)
          for (int kind = 0; kind < (can_split ? 4 : 2); ++kind)
            all.push_back({tensor, pipe, stage, micro, kind % 2 == 1, kind >= 2});
    }
  }
  return all;
}

// Nothing where it does not fit the ranks, the batch or the memory.
std::optional<LayoutChoice> try_layout(const Config& changed, const Gpus& gpus, int64_t entries) {
  try {
    LayoutChoice layout{changed, layout_cost(changed, gpus, padded_vocab(changed, entries))};
    const Estimate& e = layout.cost.estimate;
    bool fits = static_cast<double>(e.memory_bytes) <= gpus.room;
    if (fits && badly_used_ranks(e.batch, e.data_ranks).empty()) return layout;
  } catch (const Error&) {}  // not for these ranks
  return std::nullopt;
}

const std::vector<std::string> kHeads = {"tp",      "sp",      "pp",        "dp",     "ZeRO",
                                         "micro",   "acc",     "recompute", "memory", "idle",
                                         "in node", "between", "time"};

std::vector<std::string> row_of(const LayoutChoice& layout, double best) {
  const LayoutConfig& l = layout.config.layout;
  const LayoutCost& c = layout.cost;
  auto bytes = [](double n) { return n > 0 ? human_bytes(n) : "-"; };
  auto flag = [](bool x) { return x ? "yes" : "no"; };
  return {concat(l.tensor),
          flag(l.splits_tokens),
          concat(l.pipe),
          concat(c.estimate.data_ranks),
          concat(l.zero_stage),
          concat(c.estimate.batch.micro),
          concat(c.estimate.batch.accumulation),
          flag(layout.config.train.recompute),
          bytes(static_cast<double>(c.estimate.memory_bytes)),
          printed("%.0f %%", 100 * c.idle),
          bytes(c.link_bytes),
          bytes(c.network_bytes),
          printed("%.2f", c.seconds / best)};
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::string out;
  for (const std::string& line : in_columns(rows, Align::kRight)) out += "  " + line + '\n';
  return out;
}

// Whether memory or the batch is what refuses shows where memory refuses nothing.
std::string nothing_fits(const Config& config, const Gpus& gpus, int64_t entries) {
  int64_t world = gpus.nodes * gpus.per_node, batch = global_batch(config, world);
  Gpus boundless = gpus;
  boundless.room = std::numeric_limits<double>::infinity();
  if (find_layouts(config, boundless, entries).empty())
    return concat("No layout of ", counted(world, "rank"), " fits: the batch of ",
                  counted(batch, "sample"), " does not share out over them. Take fewer GPUs, or a ",
                  "larger train_batch_size (", (batch + world - 1) / world * world, ").\n");
  return concat("No layout of ", world, " ranks fits: a GPU has room for ", human_bytes(gpus.room),
                ", and a rank of each needs more. More nodes are needed",
                config.optimizer.place == StatePlace::kHost
                    ? ""
                    : ", or offload_optimizer (device: cpu) in zero_optimization",
                ".\n");
}

}  // namespace

int64_t most_zero_stage(const Config& config) {
  if (config.optimizer.kind == OptimizerKind::kOneBitAdam) return 0;
  return config.train.cuda_graph.value_or(false) ? 2 : 3;
}

LayoutCost layout_cost(const Config& config, const Gpus& gpus, int64_t vocab) {
  int64_t world = gpus.nodes * gpus.per_node, tp = config.layout.tensor, pp = config.layout.pipe;
  LayoutCost cost{.estimate = estimate(config, vocab, world)};
  const Estimate& e = cost.estimate;
  auto m = static_cast<double>(e.batch.accumulation);
  double work = e.flops_per_token * static_cast<double>(e.tokens_per_step) *
                (config.train.recompute ? 4.0 / 3 : 1) /
                (static_cast<double>(world) * gpus.rates.tflops * 1e12 * kOfPeak);
  Sent tensor = sent(tensor_bytes(config, e), tp, 1, gpus),
       data = sent(data_bytes(config, e), e.data_ranks, tp, gpus),
       pipe = sent(pipe_bytes(config, e), pp, tp * e.data_ranks, gpus);
  for (const Sent& s : {tensor, data, pipe})
    (s.in_node ? cost.link_bytes : cost.network_bytes) += s.bytes;
  double bubble = static_cast<double>(pp - 1) / m,
         hidden = kBackward * work / (config.layout.zero_stage >= 2 ? 1 : m);
  cost.idle = bubble / (1 + bubble);
  cost.seconds = (work + tensor.seconds) * (1 + bubble) + pipe.seconds +
                 std::max(kBehind * data.seconds, data.seconds - hidden);
  return cost;
}

std::vector<LayoutChoice> find_layouts(const Config& config, const Gpus& gpus, int64_t entries) {
  int64_t batch = global_batch(config, gpus.nodes * gpus.per_node);
  std::map<std::pair<int64_t, int64_t>, std::vector<LayoutChoice>> fitting;
  for (const Trial& c : trials(config, gpus, batch))
    if (auto layout = try_layout(with(config, c, batch), gpus, entries))
      fitting[{c.tensor, c.pipe}].push_back(std::move(*layout));
  auto seconds = [](const LayoutChoice& l) { return l.cost.seconds; };
  std::vector<LayoutChoice> all;
  for (const auto& [key, layouts] : fitting) {
    double least = seconds(*std::ranges::min_element(layouts, {}, seconds));
    all.push_back(*std::ranges::max_element(layouts, {}, [&](const LayoutChoice& l) {
      bool quick = seconds(l) <= least * kAlike;
      int64_t tokens = l.cost.estimate.batch.micro * config.model.seq;
      return std::pair(quick ? std::min(tokens, kEnoughTokens) : 0, -seconds(l));
    }));
  }
  std::ranges::sort(all, {}, seconds);
  return all;
}

std::vector<std::string> layout_keys(const LayoutChoice& layout, const Config& base) {
  std::vector<std::string> keys;
  auto add = [&](const char* key, auto value, auto was) {
    if (value != was) keys.push_back(concat(key, "=", value));
  };
  auto flag = [](bool x) { return std::string(x ? "true" : "false"); };
  const Config& c = layout.config;
  add("model_parallel_size", c.layout.tensor, base.layout.tensor);
  add("pipe_parallel_size", c.layout.pipe, base.layout.pipe);
  add("zero_optimization.stage", c.layout.zero_stage, base.layout.zero_stage);
  add("train_batch_size", c.batch.global.value_or(0), base.batch.global.value_or(0));
  add("train_micro_batch_size_per_gpu", c.batch.micro.value_or(0), base.batch.micro.value_or(0));
  if (base.batch.accumulation) keys.push_back("gradient_accumulation_steps=null");
  add("sequence_parallel", flag(c.layout.splits_tokens), flag(base.layout.splits_tokens));
  add("checkpoint_activations", flag(c.train.recompute), flag(base.train.recompute));
  return keys;
}

std::string layout_table(const Config& config, const Gpus& gpus, int64_t entries,
                         const std::function<bool(const std::vector<std::string>& keys)>& accepts) {
  std::vector<LayoutChoice> found;
  for (const LayoutChoice& layout : find_layouts(config, gpus, entries))
    if (found.size() < kRows && accepts(layout_keys(layout, config))) found.push_back(layout);
  if (found.empty()) return nothing_fits(config, gpus, entries);
  double best = found[0].cost.seconds;
  std::vector<std::vector<std::string>> rows = {kHeads};
  for (const LayoutChoice& layout : found) rows.push_back(row_of(layout, best));
  const Estimate& e = found[0].cost.estimate;
  std::string out = concat("A step of ", with_commas(e.batch.global), " samples, ",
                           with_commas(e.tokens_per_step), " tokens, on ",
                           counted(gpus.nodes, "node"), " of ", counted(gpus.per_node, "GPU"),
                           ", each with room for ", human_bytes(gpus.room), "\n\n", table(rows));
  if (auto own = try_layout(config, gpus, entries))
    out += concat("\nThe configuration's own:\n\n", table({kHeads, row_of(*own, best)}));
  out += concat(
      "\n  sp: sequence_parallel; micro: samples of a micro-batch; acc: micro-batches of a step; "
      "idle: what\n  stages wait; in node, between: what a rank sends in a step, to ranks of its "
      "node and to others.\n"
      "  time: 1.00 is ",
      human_duration(best), " a step, by arithmetic, with ",
      printed("%.4g", gpus.rates.tflops * kOfPeak), " TFLOP/s a GPU, half its peak,\n  and ",
      printed("%.4g", gpus.rates.link), " and ", printed("%.4g", gpus.rates.network),
      " GB/s in a node and between nodes (--network). Measure the first few.\n\nThe first:");
  std::vector<std::string> keys = layout_keys(found[0], config);
  for (const std::string& key : keys) out += " --set " + key;
  return out + (keys.empty() ? " as the configuration has it\n" : "\n");
}

}  // namespace neox
