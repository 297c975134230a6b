#include "train/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/estimate.h"
#include "launch/process_info.h"
#include "model/gpus.h"
#include "model/preference.h"

namespace neox {
namespace {

// A canonical YAML value; what is no JSON is a text.
std::string json_of(const std::string& yaml) {
  return nlohmann::json::accept(yaml) ? yaml : nlohmann::json(yaml).dump();
}

// What follows from other keys, ranks and tokenizer is said as it is, as by GPT-NeoX.
std::optional<WandbRun> wandb_run(const Config& config, const BatchPlan& batch) {
  if (!config.train.wandb) return std::nullopt;
  const auto& [project, team, group, name] = *config.train.wandb;
  WandbRun run{.project = project, .entity = team, .group = group, .name = name};
  run.host = host_name();
  const std::map<std::string, int64_t> found = {
      {"padded_vocab_size", config.model.vocab},
      {"train_batch_size", batch.global},
      {"train_micro_batch_size_per_gpu", batch.micro},
      {"gradient_accumulation_steps", batch.accumulation}};
  for (const Setting& setting : config.settings) {
    auto known = found.find(setting.key);
    std::string value = known == found.end() ? json_of(setting.value) : concat(known->second);
    if (setting.effect != Effect::kNone) run.config.emplace_back(setting.key, value);
  }
  return run;
}

// " | preferred 61 % | margin 0.312", of a step or an evaluation.
std::string measures_text(const PreferenceConfig& preference, const std::vector<double>& means) {
  auto named = named_measures(preference, means);  // the share first, last what it is about
  bool pairs = preference.kind != PreferenceConfig::Kind::kKto;
  return concat(pairs ? " | preferred " : " | as rewarded ",
                printed("%.0f", 100 * named.front().second), pairs ? " % | margin " : " % | KL ",
                printed("%.4f", named.back().second));
}

void add_measures(Scalars& scalars, const std::string& where, const PreferenceConfig& preference,
                  const std::vector<double>& means) {
  for (const auto& [name, value] : named_measures(preference, means))
    scalars.emplace_back(where + "/" + name, value);
}

// The model with sequences of the mean length of the steps after + 1 to until.
ModelConfig mean_model(const Config& config, int64_t after, int64_t until) {
  ModelConfig model = config.model;
  model.seq = tokens_of_steps(config, after, until) / (until - after);
  return model;
}

void make_directory(const Config& config, const char* key, const fs::path& dir) try {
  if (!dir.empty()) make_directories(dir);
} catch (const Error& e) { fail(e.exit(), config.where(key), ": ", key, ": ", e.what()); }

}  // namespace

std::string peak_memory_text(int64_t bytes, int64_t gpu_bytes) {
  auto text = [](int64_t n) { return human_bytes(static_cast<double>(n)); };
  std::string line = "peak memory " + text(bytes);
  return gpu_bytes > 0 ? line + ", on the GPU " + text(gpu_bytes) : line;
}

std::filesystem::path Report::metrics_dir(const Config& config) {
  return config.train.log_dir.empty() ? config.checkpoint.save : config.train.log_dir;
}

Report::Report(const Config& config, const ReportOptions& options)
    : config_(config),
      options_(options),
      marked_iteration_(options.first_iteration),
      tokens_(tokens_of(0, options.first_iteration)) {
  if (!options.speaks) return;
  int64_t first = options.first_iteration;
  make_directory(config, config.train.log_dir.empty() ? "save" : "log_dir", metrics_dir(config));
  make_directory(config, "tensorboard_dir", config.train.tensorboard_dir);
  metrics_.emplace(MetricsConfig{.dir = metrics_dir(config),
                                 .tensorboard_dir = config.train.tensorboard_dir,
                                 .wandb = wandb_run(config, options.batch),
                                 .run = config.checkpoint.save,
                                 .first_step = first == 0 ? 0 : first + 1});
  metrics_->text(first, "config", config.text());
  if (fs::path runs = metrics_->wandb_pattern(); !runs.empty())
    log_info("for Weights & Biases: wandb sync ", runs.string());
  progress_ = std::make_unique<Progress>(Progress::Options{.label = "train",
                                                           .unit = "steps",
                                                           .total = config.train.iters,
                                                           .start = first,
                                                           .plain = Progress::Plain::kNever});
}

// A disk that is full after days is no reason to lose them: points are missing until it has room.
void Report::keep(const std::function<void()>& write) {
  try {
    write();
    if (std::exchange(loses_metrics_, false)) log_info("metrics are written again");
  } catch (const Error& e) {
    if (!std::exchange(loses_metrics_, true))
      log_warning(e.what(),
                  "; training goes on, and their points are missing until it can be written");
  }
}

int64_t Report::batch_of(int64_t iteration) const {
  return options_.batches.samples_of(iteration) - options_.batches.samples_of(iteration - 1);
}

double Report::tokens_of(int64_t after, int64_t until) const {
  return static_cast<double>(tokens_of_run(config_, options_.batches, after, until));
}

void Report::step(int64_t iteration, const StepReport& step, std::optional<double> seconds) {
  if (!options_.speaks) return;
  device_seconds_ += seconds.value_or(0);
  device_steps_ += seconds.has_value();
  tokens_ += tokens_of(iteration - 1, iteration);
  Scalars scalars = {{"train/lm_loss", step.loss},
                     {"train/learning_rate", step.lr},
                     {"train/grad_norm", step.grad_norm},
                     {"train/tokens", tokens_}};
  if (config_.train.curriculum)
    scalars.emplace_back("curriculum_seqlen",
                         static_cast<double>(length_of_step(config_, iteration)));
  if (config_.batch.ramp_up)
    scalars.emplace_back("batch_size", static_cast<double>(batch_of(iteration)));
  if (config_.precision.type == Precision::kFp16)
    scalars.emplace_back("train/loss_scale", step.loss_scale);
  const auto& preference = config_.train.preference;
  if (preference) add_measures(scalars, "train", *preference, step.measures);
  if (config_.model.moe) scalars.emplace_back("train/expert_load", step.expert_load);
  keep([&] { metrics_->write(iteration, scalars); });
  progress_->update(iteration, "loss " + printed("%.4f", step.loss));
  skipped_ += !step.finite;
  if (step.finite && step.loss == 0 && step.grad_norm == 0 && !std::exchange(learns_nothing_, true))
    log_warning("step ", iteration, ": loss and gradient are 0: labels mask every token of the ",
                "batch, so that nothing is learnt (neox-data show --step ", iteration, ")");
  if (step.finite) losses_ += step.loss;
  if (iteration % config_.train.log_interval == 0 || iteration == config_.train.iters)
    log_interval(iteration, step);
}

Report::Rates Report::rates(int64_t iteration) const {
  int64_t steps = std::max<int64_t>(iteration - marked_iteration_, 1);
  double all = device_steps_ == steps ? device_seconds_ - paused_seconds_ : seconds_since_mark();
  double seconds = std::max(all, 1e-9) / static_cast<double>(steps);
  double tokens = tokens_of(iteration - steps, iteration) / seconds / static_cast<double>(steps);
  const BatchSchedule& batches = options_.batches;
  auto samples =
      static_cast<double>(batches.samples_of(iteration) - batches.samples_of(iteration - steps));
  ModelConfig mean = mean_model(config_, iteration - steps, iteration);
  Rates rates{.seconds = seconds,
              .samples = samples / static_cast<double>(steps) / seconds,
              .tokens = tokens,
              .flops = tokens * train_flops_per_token(mean),
              .used = {}};
  if (config_.train.peak_flops > 0)
    rates.used = 100 * rates.flops / static_cast<double>(options_.ranks) / config_.train.peak_flops;
  return rates;
}

std::string Report::line(int64_t iteration, const StepReport& step, const Rates& rates) const {
  int64_t finite = iteration - marked_iteration_ - skipped_;
  double loss = finite > 0 ? losses_ / static_cast<double>(finite) : step.loss;
  const auto& preference = config_.train.preference;
  std::string line =
      concat("step ", iteration, "/", config_.train.iters, " | loss ", printed("%.4f", loss),
             preference ? measures_text(*preference, step.measures) : "", " | lr ",
             printed("%.3e", step.lr), " | grad norm ", printed("%.3f", step.grad_norm));
  if (config_.precision.type == Precision::kFp16)
    line += concat(" | loss scale ", printed("%g", step.loss_scale));
  if (config_.train.curriculum)
    line += concat(" | ", length_of_step(config_, iteration), " tokens a sequence");
  if (config_.batch.ramp_up) line += concat(" | batch ", batch_of(iteration));
  if (config_.model.moe) line += concat(" | expert load ", printed("%.2f", step.expert_load));
  if (skipped_ > 0) line += concat(" | ", counted(skipped_, "step"), " skipped");
  line += concat(" | ", printed("%.1f", rates.samples), " samples/s | ",
                 with_commas(std::llround(rates.tokens)), " tokens/s | ", human_count(rates.flops),
                 "FLOP/s");
  if (rates.used) line += concat(" | MFU ", printed("%.1f", *rates.used), " %");
  // Steps of a curriculum grow, so that of those done the time does not hold, but the rate.
  double left = tokens_of(iteration, config_.train.iters) / rates.tokens;
  if (iteration < config_.train.iters) line += " | " + human_duration(left) + " left";
  return line;
}

void Report::log_interval(int64_t iteration, const StepReport& step) {
  Rates now = rates(iteration);
  log_info(line(iteration, step, now));
  Scalars scalars = {
      {"runtime/samples_per_sec", now.samples},
      {"runtime/iteration_time", now.seconds},
      {"runtime/steps_per_sec", 1 / now.seconds},
      {"runtime/tokens_per_sec", now.tokens},
      {"runtime/flops_per_sec_per_gpu", now.flops / static_cast<double>(options_.ranks)}};
  if (now.used) scalars.emplace_back("runtime/model_flops_utilization", *now.used);
  keep([&] { metrics_->write(iteration, scalars); });
  begin_interval(iteration);
}

void Report::begin_interval(int64_t iteration) {
  mark_ = Clock::now();
  paused_seconds_ = device_seconds_ = 0;
  device_steps_ = 0;
  marked_iteration_ = iteration;
  skipped_ = 0;
  losses_ = 0;
}

void Report::measured(int64_t iteration, const Scalars& scalars) {
  if (!options_.speaks || scalars.empty()) return;
  keep([&] { metrics_->write(iteration, scalars); });
}

void Report::evaluation(int64_t iteration, const char* split, const Evaluation& means) {
  if (!options_.speaks) return;
  std::string name = split,
              line = concat("step ", iteration, " | ", name, " loss ", printed("%.4f", means.loss));
  Scalars scalars = {{name + "/lm_loss", means.loss}};
  if (const auto& preference = config_.train.preference) {
    line += measures_text(*preference, means.measures);
    add_measures(scalars, name, *preference, means.measures);
  } else {
    line += concat(" | perplexity ", printed("%.2f", std::exp(means.loss)));
    scalars.emplace_back(name + "/lm_loss_ppl", std::exp(means.loss));
    if (config_.train.by_character) {
      double perplexity = means.size.perplexity(means.loss),
             bits = means.size.bits_per_byte(means.loss);
      line += concat(", by character ", printed("%.4f", perplexity), " | bits per byte ",
                     printed("%.4f", bits));
      scalars.emplace_back(name + "/lm_loss_char_lvl_ppl", perplexity);
      scalars.emplace_back(name + "/bits_per_byte", bits);
    }
  }
  log_info(line);
  keep([&] { metrics_->write(iteration, scalars); });
}

void Report::samples(int64_t iteration, const std::string& text) {
  if (!options_.speaks) return;
  log_info("step ", iteration, " | sample: ", text);
  keep([&] { metrics_->text(iteration, "samples", text); });
}

void Report::saved(int64_t iteration, double seconds) {
  if (!options_.speaks) return;
  keep([&] { metrics_->write(iteration, {{"runtime/save_time", seconds}}); });
}

void Report::pause() { paused_ = Clock::now(); }

void Report::resume() {
  paused_seconds_ += std::chrono::duration<double>(Clock::now() - paused_).count();
}

double Report::seconds_since_mark() const {
  return std::chrono::duration<double>(Clock::now() - mark_).count() - paused_seconds_;
}

void Report::begin() {
  if (options_.speaks) log_info("ready after ", human_duration(process_age()));
  mark_ = Clock::now();
}

void Report::finish() {
  if (!options_.speaks) return;
  progress_->finish();
  keep([&] { metrics_->finish(); });
  at::Device device = options_.device;
  log_info(peak_memory_text(peak_memory(), device.is_cuda() ? gpu_peak_memory(device.index()) : 0));
}

void Report::memory(const TrainStep::Memory& parts) {
  if (!options_.speaks) return;
  at::Device device = options_.device;
  int64_t all = device.is_cuda() ? gpu_peak_memory(device.index()) : peak_memory();
  auto text = [](int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  log_info("memory of rank 0: parameters ", text(parts.parameters), ", gradients ",
           text(parts.gradients), ", optimizer ", text(parts.optimizer),
           ", activations and the rest ",
           text(std::max<int64_t>(0, all - parts.parameters - parts.gradients - parts.optimizer)),
           ", at most ", text(all), " together");
}

}  // namespace neox
