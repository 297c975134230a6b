#include "train/run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <mutex>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "comm/mesh.h"
#include "comm/thread.h"
#include "config/architecture.h"
#include "config/batch.h"
#include "config/estimate.h"
#include "data/step_samples.h"
#include "generate/load.h"
#include "launch/process_info.h"
#include "model/device.h"
#include "model/gpus.h"
#include "ops/bf16_kernels.h"
#include "ops/product.h"
#include "optim/optimizer.h"
#include "tokenizer/of_config.h"
#include "train/claim_run.h"
#include "train/ranks.h"
#include "train/run_copies.h"
#include "train/trainer.h"

namespace neox {
namespace {

// Of a save: what any model takes, and bytes that each node writes in a second to a small shared
// file system.
constexpr double kAnySave = 5, kWriteRate = 300e6;

// Seconds that a save may take, until this life has measured one: as long as the one that it goes
// on from, or by parameters and two moments in fp32. last_save: 0 where there is none.
double expected_save(const RunPlace& place, const Config& config, double last_save) {
  if (last_save > 0) return kAnySave + last_save;
  double bytes = 12 * static_cast<double>(num_parameters(config.model));
  return kAnySave + bytes / (kWriteRate * place.num_nodes);
}

Dtypes training_dtypes(const PrecisionConfig& precision) {
  Dtypes types = dtypes_of(precision.type);
  if (precision.gradients) types.grad = dtypes_of(*precision.gradients).param;
  if (precision.gradient_sums) types.sent = dtypes_of(*precision.gradient_sums).param;
  return types;
}

Keeping keeping_of(int64_t zero_stage) {
  return zero_stage >= 3   ? Keeping::kChunks
         : zero_stage == 2 ? Keeping::kParameters
                           : Keeping::kAll;
}

ModelOptions model_options(const Config& config, bool resumes, int ranks, at::Device device) {
  return {.start = resumes ? ModelOptions::kZeros : ModelOptions::kInitialValues,
          .dtypes = training_dtypes(config.precision),
          .device = device,
          .keeping = keeping_of(config.layout.zero_stage),
          .recompute_layers = config.train.recompute ? config.train.recompute_layers : 0,
          .seed = config.train.seed,
          .partition = config.layout.partition_method,
          .splits_tokens = config.layout.splits_tokens,
          .chunking = chunking_of(config.optimizer),
          .preference = config.train.preference,
          .recorder = [train = config.train, ranks](at::Device device) {
            return recorder_of(train, ranks, device);
          }};
}

void check_text(const Config& config, const Tokenizer* tokenizer) {
  check_usage(!config.train.by_character || tokenizer, config.where("char_level_ppl"),
              ": char_level_ppl needs a tokenizer (vocab_file), by which tokens are text");
}

BoundaryRules boundary_rules(const Config& config, const Tokenizer* tokenizer) {
  using At = BoundaryRules::At;
  const DataConfig& data = config.data;
  bool has_end = tokenizer && tokenizer->has_end_of_document();
  for (auto [key, set] : {std::pair{"eod_mask_loss", data.eod_mask_loss},
                          std::pair{"reset_attention_mask", data.reset_attention_mask},
                          std::pair{"reset_position_ids", data.reset_position_ids}})
    check_usage(has_end || !set, config.where(key), ": ", key,
                " needs a tokenizer (vocab_file) with <|endoftext|>");
  return {.end_of_document = has_end ? tokenizer->end_of_document() : -1,
          .attention = data.reset_attention_mask ? At::kRespected : At::kIgnored,
          .positions = data.reset_position_ids ? At::kRespected : At::kIgnored};
}

void say_ramp_up(const Config& config, const Start& start, int64_t data_ranks) {
  BatchSchedule batches = batch_schedule(config, start.batch.global);
  int64_t size = batches.size_at(start.state.consumed_samples);
  int64_t steps = batches.stages().back().steps_before;
  if (start.state.iteration >= steps) return;
  BatchPlan now = of_size(start.batch, size, data_ranks);
  log_info("rampup_batch_size: steps have ", counted(size, "sample"), " now and ",
           with_commas(start.batch.global), " from step ", with_commas(steps + 1), " on");
  std::string bad = badly_used_ranks(now, data_ranks, "start of rampup_batch_size");
  if (!bad.empty()) log_warning("while the batch grows, ", bad);
}

void say_start(const Config& config, const Start& start, const Mesh& mesh, at::Device device) {
  log_info("neox-train: ", human_count(static_cast<double>(num_parameters(config.model))),
           " parameters (", architecture(config.model), ")");
  int64_t data_ranks = mesh.layout().replicate * mesh.layout().shard;
  Precision type = config.precision.type;
  bool half = device.is_cpu() && (type == Precision::kFp16 || type == Precision::kBf16);
  bool by_kernels = half && type == Precision::kBf16 && bf16_kernels();
  log_info("device ", describe_device(device), ", ", precision_name(type),
           by_kernels ? concat(" by ", bf16_kernels()->name) : "", ", ", to_string(mesh.layout()),
           config.layout.splits_tokens ? " (sequence parallel)" : "", ", ",
           to_string(start.batch, data_ranks));
  std::string bad = badly_used_ranks(start.batch, data_ranks);
  if (!bad.empty()) log_warning(bad);
  if (config.batch.ramp_up) say_ramp_up(config, start, data_ranks);
  if (half && multiplied_in_fp32(dtypes_of(type).param))
    log_info("this CPU is slower in ", precision_name(type),
             " than in fp32, so products are computed in fp32");
  else if (half && type == Precision::kFp16)
    log_warning(
        "fp16 is several times slower than fp32 on a CPU; --set precision=bfloat16 or --set "
        "precision=fp32 is faster");
  if (device.is_cuda())
    log_info("attention by ",
             attention_kernel(device.index(), dtypes_of(type).param, config.model.seq,
                              config.model.head_size()),
             " where nothing but order hides tokens (heads of ", config.model.head_size(), ")");
  for (const std::string& note : config.notes) log_info("note: ", note);
  if (start.checkpoint)
    log_info(start.resume == Resume::kWeights ? "starting from the weights of " : "resuming from ",
             start.checkpoint->dir().string(),
             start.resume == Resume::kNoOptimizer ? " without its optimizer's state" : "");
  if (start.reference)
    log_info("answers are compared with those of ", start.reference->dir().string());
  if (!start.changed.empty()) log_info("not as in the run so far: ", start.changed);
}

constexpr const char* kBeforeSteps = "before the first step; there is nothing to save";

// Collective. Other ranks look for an index once it is built: without locks each would build it,
// and a node may for a minute not see a file that it has looked for in vain.
Sampler open_behind_rank_0(Control& control, const std::function<Sampler()>& open) {
  std::optional<Sampler> sampler;
  if (control.rank() == 0) sampler.emplace(open());
  control.gather("", kMostReading);
  return sampler ? std::move(*sampler) : open();
}

// The order of samples is that of the run's first start, which may have asked for fewer steps.
// asked: as for say_passes().
bool says_repeats(const Sampler& sampler, const Config& config, const BatchSchedule& batches,
                  int64_t asked) {
  int64_t known = sampler.size(Split::kTrain), samples = batches.samples_of(config.train.iters);
  if (config.train.epochs > 0 || samples <= std::max(asked, known)) return false;
  log_warning("train_iters ", config.train.iters, " (", config.where("train_iters"),
              "): the order of the ", with_commas(known), " training samples was made for fewer ",
              "steps, when the run began; from step ", batches.steps_of(known) + 1,
              " on they come again. For other samples begin a run from this one's weights: another "
              "save directory, load of this one, and finetune: true");
  return true;
}

// "each token of the training data is read 3.2 times".
// asked: training samples of which the sampler knows, those of the run's first start.
void say_passes(const Sampler& sampler, const Config& config, const BatchSchedule& batches,
                int64_t asked) {
  if (config.data.packing != Packing::kPacked) return;
  if (config.train.epochs > 0)
    return log_info("train_epochs ", config.train.epochs, ": ", config.train.iters, " steps, ",
                    with_commas(sampler.size(Split::kTrain)), " samples an epoch");
  std::vector<double> passes = sampler.passes(Split::kTrain);
  auto longer =
      static_cast<double>(batches.samples_of(config.train.iters)) / static_cast<double>(asked);
  for (double& n : passes) n *= std::max(1.0, longer);
  auto [least, most] = std::ranges::minmax(passes);
  auto times = [](double n) { return n < 0.01 ? "less than 0.01" : human_count(n); };
  std::string range = times(least);
  bool varies = times(most) != range;
  if (varies) range = concat(range, " to ", times(most));
  log_info("each token of the training data is read ", range, " times",
           varies ? concat(", by its dataset of the ", passes.size()) : "");
}

// The job's script counts the lives that end without a checkpoint (docs/slurm.md).
void tell_script(const std::string& failures_file) {
  if (!failures_file.empty()) std::ofstream(failures_file) << "saved\n";
}

// An error is told before anything here ends that waits for other ranks.
Exit run(Trainer& trainer, const RunPlace& place) {
  try {
    return trainer.run();
  } catch (const std::exception& e) {
    place.failed(e);
    throw;
  }
}

}  // namespace

TimeLimit time_limit_of(const RunPlace& place, const Config& config, double last_save) {
  double save = expected_save(place, config, last_save);
  // A life that gave all its time to a save that may be short would never get on.
  if (place.allocation_left && last_save == 0)
    save = std::min(save, std::max(0.0, *place.allocation_left) / 8);
  return {place.allocation_left, config.train.exit_duration, save, place.started};
}

std::string little_time(const RunPlace& place, const Config& config, double last_save) {
  if (!place.allocation_left || config.checkpoint.save.empty()) return "";
  double passed = TimeLimit::Seconds(TimeLimit::Clock::now() - place.started).count();
  double left = std::max(0.0, *place.allocation_left - passed);
  double save = expected_save(place, config, last_save);
  if (left > save) return "";
  return concat("the allocation ends in ", human_duration(left), ", and saving may take ",
                human_duration(save),
                ": what is trained until then may be lost; give the job more time (--time)");
}

// Collective.
Sampler open_samples(const Config& config, const TrainState& state, int64_t end_of_document,
                     Control& control, const RunPlace& place) {
  BatchSchedule batches = batch_schedule(config, state.global_batch);
  Sampler sampler = open_behind_rank_0(control, [&] {
    check_datasets_exist(config);
    return Sampler(config.data, config.model.seq, config.model.vocab,
                   static_cast<int32_t>(end_of_document),
                   sample_counts(config.train, batches, state.dataset_samples),
                   [&stop = place.stop] { check_not_stopped(stop, kBeforeSteps); });
  });
  if (control.rank() != 0) return sampler;
  for (const std::string& warning : sampler.warnings()) log_warning(warning);
  if (config.train.iters > 0 && !says_repeats(sampler, config, batches, state.dataset_samples))
    say_passes(sampler, config, batches, state.dataset_samples);
  return sampler;
}

Exit train_rank(Config config, Communicator& world, Control& control, const RunPlace& place) {
  bool first = world.rank() == 0;
  Mesh mesh(fitting_layout(config.layout, world.size()), world);
  check_goes_on(config, place);
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(config);
  check_text(config, tokenizer.get());
  RunCopies copies(config, control, place);
  Start start = find_start(config, tokenizer.get(), mesh.data().size(), control);
  if (first) say_start(config, start, mesh, place.device);
  std::optional<RunClaim> claim = claim_run(config, start, place, control);
  copies.begin(start);
  check_not_stopped(place.stop, kBeforeSteps);
  BoundaryRules boundaries = boundary_rules(config, tokenizer.get());
  Sampler sampler = open_samples(config, start.state, boundaries.end_of_document, control, place);
  auto options = [&](bool resumes) {
    return model_options(config, resumes, world.size(), place.device);
  };
  GptNeoX model(config.model, mesh, options(start.checkpoint.has_value()));
  std::optional<Reference> reference;
  if (config.train.preference && config.train.preference->has_reference())
    reference.emplace(config.model, mesh, options(true), start.reference, control);
  start.reference.reset();
  const double last_save = start.state.save_seconds;
  TimeLimit limit = time_limit_of(place, config, last_save);
  if (std::string little = little_time(place, config, last_save); first && !little.empty())
    log_warning(little);
  TrainerParts parts{.config = config,
                     .model = model,
                     .sampler = sampler,
                     .tokenizer = tokenizer.get(),
                     .control = control,
                     .stop = place.stop,
                     .limit = limit,
                     .life = place.life,
                     .ranks_here = place.ranks_here,
                     .boundaries = boundaries,
                     .reference = reference ? &*reference : nullptr,
                     .pace = place.pace,
                     .saved =
                         [&](int64_t step) {
                           tell_script(place.failures_file);
                           copies.saved(step);
                         },
                     .needed = [&copies](int64_t step) { return copies.needs(step); }};
  Trainer trainer(parts, std::move(start));
  Exit exit = run(trainer, place);
  if (exit == Exit::kDone) copies.finish();
  return exit;
}

Exit train_threads(const Config& config, int ranks, const RunPlace& place) {
  if (ranks == 1) {
    auto world = self_communicator();
    AloneControl control;
    return train_rank(config, *world, control, place);
  }
  check_usage(!place.device.is_cuda(),
              "ranks as threads compute on the CPU; a GPU takes one process");
  Layout layout = fitting_layout(config.layout, ranks);
  int64_t shard = config.layout.shard;
  check_usage(layout.size() == ranks, "the layout ", to_string(layout),
              shard > 1 ? concat(", of mics_shard_size ", shard, ",") : "", " takes ",
              layout.size(), " of the ", ranks, " ranks asked for; start it with --spawn ",
              layout.size());
  at::set_num_threads(std::max(1, at::get_num_threads() / ranks));
  std::mutex mutex;
  Exit exit = Exit::kDone;
  RunPlace shared = place;
  shared.ranks_here = ranks;
  run_thread_ranks(ranks, [&](Communicator& world, Control& control) {
    Exit mine = train_rank(config, world, control, shared);
    std::lock_guard lock(mutex);
    exit = mine;
  });
  return exit;
}

}  // namespace neox
