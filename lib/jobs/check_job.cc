#include "jobs/check_job.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "config/batch.h"
#include "config/estimate.h"
#include "jobs/check_files.h"
#include "jobs/gpu_sizes.h"
#include "jobs/layouts.h"

namespace neox {
namespace {

using Notes = std::vector<std::string>;

constexpr int kLeastLead = 180;
constexpr double kUsable = 0.9;  // of a GPU's memory; the rest is libraries' and buffers'

int64_t ranks_on(const SlurmJob& job, int nodes) { return int64_t{nodes} * ranks_per_node(job); }

std::string shape(const SlurmJob& job, int nodes) {
  int each = ranks_per_task(job);
  return concat(counted(nodes, "node"), " x ", counted(job.tasks_per_node, "task"),
                each > 1 ? concat(" x --spawn ", each) : "", " = ",
                counted(ranks_on(job, nodes), "rank"));
}

std::vector<int> ends(NodeRange nodes) {
  if (nodes.min == nodes.max) return {nodes.min};
  return {nodes.min, nodes.max};
}

int64_t vocab_of(const Config& config, const CheckOptions& options) {
  return config.model.vocab > 0 ? config.model.vocab : padded_vocab(config, options.entries);
}

// One rank drives one GPU.
void check_tasks(const SlurmJob& job, Notes& notes) {
  int ranks = ranks_per_node(job), gpus = job.gpus.per_node, each = ranks_per_task(job);
  check_usage(gpus > 0 || each == 1 || ranks_on(job, job.nodes.max) == each, "--spawn ", each,
              " in a job of several tasks: on CPUs each rank is a task of its own; take "
              "--tasks-per-node ",
              ranks);
  check_usage(gpus == 0 || ranks <= gpus, "--tasks-per-node ", job.tasks_per_node,
              each > 1 ? concat(" x --spawn ", each) : "", " with --gpus-per-node ", gpus,
              ": each rank drives one GPU; take --tasks-per-node ", gpus,
              each > 1 ? " without --spawn" : "");
  if (ranks < gpus)
    notes.push_back(concat(counted(ranks, "rank"), " per node on ", gpus, " GPUs: ", gpus - ranks,
                           " stay idle, unless neox-train --spawn ", gpus / job.tasks_per_node,
                           " starts a process for each"));
}

void check_layout(const SlurmJob& job, const Config& config, int nodes) {
  int64_t pipe = config.layout.pipe, tensor = config.layout.tensor, cell = pipe * tensor;
  int64_t world = ranks_on(job, nodes);
  if (world % cell == 0) return;
  std::string fixes;
  for (int n = nodes + 1; n <= nodes + cell && fixes.empty(); ++n)
    if (ranks_on(job, n) % cell == 0)
      fixes += concat("\n  --nodes ", n, ", ", ranks_on(job, n), " ranks");
  for (SlurmJob fewer = job; --fewer.tasks_per_node > 0;)
    if (int64_t ranks = ranks_on(fewer, nodes); ranks % cell == 0) {
      fixes += concat("\n  --tasks-per-node ", fewer.tasks_per_node, ", ", ranks, " ranks");
      break;
    }
  for (int64_t t = tensor - 1; t > 0; --t)
    if (config.model.heads % t == 0 && world % (pipe * t) == 0) {
      fixes += concat("\n  --set model_parallel_size=", t);
      break;
    }
  fail(Exit::kUsage, shape(job, nodes), ": pipe_parallel_size ", pipe, " (",
       config.where("pipe_parallel_size"), ") x model_parallel_size ", tensor, " (",
       config.where("model_parallel_size"), ") needs a multiple of ", cell,
       " ranks. One of these mends it:", fixes);
}

// --nodes that makes micro x accumulation x ranks the global batch.
std::string nodes_for_batch(const SlurmJob& job, const Config& config) {
  const BatchConfig& batch = config.batch;
  if (!batch.global || !batch.micro || !batch.accumulation) return "";
  int64_t cell = config.layout.pipe * config.layout.tensor * *batch.global;
  int64_t per_node = *batch.micro * *batch.accumulation * ranks_per_node(job);
  if (cell % per_node != 0) return "";
  return concat("\n  --nodes ", cell / per_node);
}

Estimate estimate_on(const SlurmJob& job, const Config& config, int nodes,
                     const CheckOptions& options, std::optional<FrozenBatch> kept) {
  try {
    return estimate(config, vocab_of(config, options), ranks_on(job, nodes), std::nullopt, kept);
  } catch (const Error& e) {
    fail(e.exit(), shape(job, nodes), ": ", e.what(), nodes_for_batch(job, config));
  }
}

// Offers changes by which a rank needs less memory, each alone. offer: says whether the model fits.
void offer_less_memory(
    const Config& config,
    const std::function<bool(const Config& changed, const std::string& words)>& offer) {
  Config changed = config;
  int64_t tensor = config.layout.tensor;
  changed.layout.splits_tokens = true;
  if (tensor > 1 && !config.layout.splits_tokens && config.model.seq % tensor == 0)
    offer(changed, "sequence_parallel=true");
  changed = config;
  changed.train.recompute = true;
  if (!config.train.recompute) offer(changed, "checkpoint_activations=true");
  changed = config;
  int64_t most = most_zero_stage(config);
  for (int64_t stage = config.layout.zero_stage + 1; stage <= most; ++stage) {
    changed.layout.zero_stage = stage;
    if (offer(changed, concat("zero_optimization.stage=", stage))) break;
  }
  changed = config;
  changed.batch.accumulation.reset();
  for (int64_t micro = config.batch.micro.value_or(1) / 2; micro > 0; micro /= 2) {
    changed.batch.micro = micro;
    if (offer(changed, concat("train_micro_batch_size_per_gpu=", micro))) break;
  }
  changed = config;
  for (int64_t t = config.layout.tensor * 2; t <= 64; t *= 2) {
    changed.layout.tensor = t;
    if (config.model.heads % t == 0 && offer(changed, concat("model_parallel_size=", t))) break;
  }
}

// Changes that make the model fit; each alone.
std::string memory_fixes(const SlurmJob& job, const Config& config, int nodes,
                         const CheckOptions& options) {
  double room = room_of(job, options).value();
  int64_t world = ranks_on(job, nodes);
  std::string fixes;
  offer_less_memory(config, [&](const Config& changed, const std::string& words) {
    try {
      Estimate e = estimate(changed, vocab_of(changed, options), world);
      if (static_cast<double>(e.memory_bytes) > room) return false;
      fixes += concat("\n  --set ", words, ": ", human_bytes(static_cast<double>(e.memory_bytes)));
      return true;
    } catch (const Error&) { return false; }  // does not fit the ranks
  });
  return (fixes.empty() ? " More nodes, model_parallel_size or pipe_parallel_size are needed."
                        : " One of these mends it:" + fixes) +
         "\nneox-submit layouts with the same options shows the quickest that fit.";
}

void check_memory(const SlurmJob& job, const Config& config, int nodes, const Estimate& need,
                  const CheckOptions& options, Notes& notes) {
  auto room = room_of(job, options);
  double bytes = static_cast<double>(need.memory_bytes), small = gpu_sizes(job.gpus.type).least;
  if (room && !options.gpu_memory && small > 0 && bytes > small * 1e9 * kUsable && bytes <= *room)
    notes.push_back(concat("the fullest rank needs about ", human_bytes(bytes), ", which the ",
                           job.gpus.type, " of ", human_bytes(small * 1e9),
                           " do not have: --gpu-memory ", small, " where yours are such"));
  if (!room || bytes <= *room) return;
  fail(Exit::kUsage, shape(job, nodes), ": the fullest rank needs about ", human_bytes(bytes),
       " (weights ", human_bytes(static_cast<double>(need.parameter_bytes)), ", gradients ",
       human_bytes(static_cast<double>(need.gradient_bytes)), ", optimizer ",
       human_bytes(static_cast<double>(need.master_bytes + need.moment_bytes)), ", activations ",
       human_bytes(static_cast<double>(need.activation_bytes)), "), but a GPU of ",
       human_bytes(*room / kUsable), options.gpu_memory ? "" : " (--gpu-memory says another size)",
       " has room for ", human_bytes(*room), ".", memory_fixes(job, config, nodes, options));
}

int lead_for(const Estimate& e, const SlurmJob& job, const CheckOptions& options, Notes& notes) {
  double seconds = static_cast<double>(e.checkpoint_bytes) / (options.write_rate * 1e6);
  int needed = std::max(kLeastLead, static_cast<int>(std::ceil(seconds * 1.5 + 60)));
  int lead = options.lead_seconds.value_or(needed);
  notes.push_back(concat("a checkpoint of ", human_bytes(static_cast<double>(e.checkpoint_bytes)),
                         " takes about ", human_duration(seconds), " at ",
                         human_bytes(options.write_rate * 1e6), "/s; SIGUSR1 comes ", lead,
                         " s before the end"));
  if (lead < needed)
    notes.push_back(concat("--lead ", lead, " is less than the ", needed,
                           " s that a save may need with what comes before it"));
  auto limit = parse_slurm_time(job.slurm.time);
  bool limited = limit.value_or(0) > 0;
  check_usage(!limited || *limit > lead, "--time ", job.slurm.time, " is ", limit.value_or(0),
              " s, and the last ", lead,
              " s of it are for saving; take a longer --time, or a shorter --lead");
  return lead;
}

void note_elastic(const SlurmJob& job, const Config& config, const std::vector<Estimate>& found,
                  Notes& notes) {
  for (size_t i = 0; i < found.size(); ++i) {
    const Estimate& e = found[i];
    notes.push_back(concat(shape(job, ends(job.nodes)[i]), ": ", to_string(e.batch, e.data_ranks),
                           ", about ", human_bytes(static_cast<double>(e.memory_bytes)),
                           " a rank"));
    std::string bad = badly_used_ranks(e.batch, e.data_ranks);
    if (!bad.empty()) notes.push_back(bad);
  }
  if (found.size() > 1 && found[0].batch.global != found[1].batch.global)
    notes.push_back(
        "the first start decides the global batch, and later ones keep it; set "
        "train_batch_size to decide it here");
  if (int ranks = ranks_per_node(job); config.layout.tensor > ranks)
    notes.push_back(concat("model_parallel_size ", config.layout.tensor, " reaches over ", ranks,
                           " ranks a node: tensor parallelism across nodes is slow"));
}

}  // namespace

std::optional<double> room_of(const SlurmJob& job, const CheckOptions& options) {
  auto memory = options.gpu_memory ? options.gpu_memory : gpu_sizes(job.gpus.type).most;
  if (job.gpus.per_node == 0 || !memory) return std::nullopt;
  return *memory * 1e9 * kUsable;
}

CheckedJob check_job(const SlurmJob& job, const Config& config, const CheckOptions& options) {
  CheckedJob checked;
  check_tasks(job, checked.notes);
  if (job.gpus.per_node > 0 && !room_of(job, options))
    checked.notes.push_back(concat(
        "memory is not checked: ",
        job.gpus.type.empty() ? "no type of GPU is given" : job.gpus.type,
        job.gpus.type.empty() ? "" : " is no type of GPU whose memory is known",
        "; --gpu-memory GB, or --gpus-per-node h100:", job.gpus.per_node, ", has it checked"));
  std::optional<FrozenBatch> kept = kept_batch(config, options);
  std::vector<Estimate> found;
  for (int nodes : ends(job.nodes)) {
    check_layout(job, config, nodes);
    found.push_back(estimate_on(job, config, nodes, options, kept));
    check_memory(job, config, nodes, found.back(), options, checked.notes);
  }
  check_files(config, options, checked.notes);
  note_elastic(job, config, found, checked.notes);
  checked.lead_seconds = lead_for(found[0], job, options, checked.notes);
  return checked;
}

std::optional<int64_t> parse_slurm_time(const std::string& text) {
  long long a = 0, b = 0, c = 0, d = 0;
  int used = 0, size = static_cast<int>(text.size());
  auto matches = [&](const char* format, auto*... numbers) {
    used = 0;
    return std::sscanf(text.c_str(), format, numbers..., &used) == sizeof...(numbers) &&
           used == size;
  };
  if (size == 0) return std::nullopt;
  if (equal_words(text, "unlimited") || equal_words(text, "infinite")) return 0;
  if (matches("%lld-%lld:%lld:%lld%n", &a, &b, &c, &d)) return ((a * 24 + b) * 60 + c) * 60 + d;
  if (matches("%lld-%lld:%lld%n", &a, &b, &c)) return ((a * 24 + b) * 60 + c) * 60;
  if (matches("%lld-%lld%n", &a, &b)) return (a * 24 + b) * 3600;
  if (matches("%lld:%lld:%lld%n", &a, &b, &c)) return (a * 60 + b) * 60 + c;
  if (matches("%lld:%lld%n", &a, &b)) return a * 60 + b;
  if (matches("%lld%n", &a)) return a * 60;
  return std::nullopt;
}

}  // namespace neox
