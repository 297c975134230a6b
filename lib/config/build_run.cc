// The training loop, checkpoints, generation.
#include "base/file.h"
#include "base/text.h"
#include "config/batch_schedule.h"
#include "config/build.h"

namespace neox {
namespace {

// A run that begins from another's checkpoint has checkpoints of its own to go on from.
Resume read_resume(KeyReader& keys, const CheckpointConfig& checkpoint) {
  Resume resume = keys.flag("no_load_optim") ? Resume::kNoOptimizer : Resume::kWhole;
  if (keys.flag("finetune")) resume = Resume::kWeights;
  if (resume == Resume::kWhole) return resume;
  const std::string key = resume == Resume::kWeights ? "finetune" : "no_load_optim";
  keys.require(!checkpoint.load.empty(), key, key, " is true, but load is not given; add load, ",
               "the directory of the checkpoint to begin from");
  keys.require(!same_place(checkpoint.load, checkpoint.save), key, key,
               " is true, and load and save (", keys.where("save"), ") are both ",
               checkpoint.save.string(),
               "; the run begins from the checkpoint in load and, once it has saved, goes on from "
               "its own: give save another directory");
  return resume;
}

ProfileConfig read_profile(KeyReader& keys) {
  ProfileConfig profile{keys.integer_from("profile_step_start", 0),
                        keys.integer_from("profile_step_stop", 1), keys.integers("profile_ranks")};
  if (!keys.flag("profile")) return {};
  const std::string stop = "profile_step_stop";
  keys.require(profile.stop > profile.start, stop, stop, " is ", profile.stop,
               "; it must be more than profile_step_start, ", profile.start);
  return profile;
}

DiagnosticsConfig read_diagnostics(KeyReader& keys, const Config& so_far) {
  const OptimizerConfig& optimizer = so_far.optimizer;
  DiagnosticsConfig d{.gradient_norms = keys.flag("log_grad_norm"),
                      .gradient_zeros = keys.flag("log_grad_pct_zeros"),
                      .parameter_norms = keys.flag("log_param_norm"),
                      .optimizer_norms = keys.flag("log_optimizer_states"),
                      .noise_steps = keys.integer_from("gradient_noise_scale_n_batches", 2),
                      .noise_on_host = keys.flag("gradient_noise_scale_cpu_offload")};
  const std::string noise = "log_gradient_noise_scale";
  if (!keys.flag(noise)) d.noise_steps = 0;
  keys.require(d.noise_steps == 0 || !so_far.batch.ramp_up, noise, noise,
               " compares steps of one size, and by rampup_batch_size (",
               keys.where("rampup_batch_size"), ") they grow; remove one of them");
  if (optimizer.kind != OptimizerKind::kOneBitAdam) return d;
  for (const char* key : {"log_grad_norm", "log_grad_pct_zeros", "log_gradient_noise_scale"})
    keys.require(!keys.flag(key), key, key,
                 " is of the gradients of whole batches, and optimizer.type: OneBitAdam (",
                 keys.where("optimizer.type"),
                 ") does not sum them over the ranks; remove one of them");
  return d;
}

// tensorboard_dir, or what DeepSpeed's dictionary says.
std::string read_tensorboard(KeyReader& keys) {
  const std::string key = "tensorboard_dir", dictionary = "tensorboard";
  std::string dir = keys.text(key);
  if (!keys.given(dictionary)) return dir;
  bool enabled = keys.flag(dictionary + ".enabled");
  std::string path = keys.text(dictionary + ".output_path"),
              job = keys.text(dictionary + ".job_name");
  for (const char* part : {".enabled", ".output_path", ".job_name"})
    keys.mark(dictionary + part, Effect::kInput);
  if (!enabled || !dir.empty()) return dir;
  keys.require(!path.empty(), dictionary, dictionary, ".enabled is true, but output_path is not ",
               "given; add it, or write tensorboard_dir: DIR instead");
  dir = concat(path, "/", job);
  keys.derive(key, yaml_text(dir), dictionary);
  return dir;
}

std::optional<WandbConfig> read_wandb(KeyReader& keys) {
  WandbConfig wandb{keys.text("wandb_project"), keys.text("wandb_team"), keys.text("wandb_group"),
                    keys.text("wandb_run_name")};
  if (!keys.flag("use_wandb")) return std::nullopt;
  if (keys.text("log_dir").empty() && keys.text("save").empty())
    keys.note(concat(keys.where("use_wandb"),
                     ": use_wandb: nothing is written for Weights & Biases, since neither log_dir "
                     "nor save says where"));
  return wandb;
}

// An epoch is GPT-NeoX's: an index of one pass over each data set.
void check_epochs(KeyReader& keys, const Config& config) {
  const std::string key = "train_epochs";
  const DataConfig& data = config.data;
  bool alike = !data.weight_by_documents && data.blend.weights.empty();
  for (const DataSets* sets : {&data.train, &data.valid, &data.test})
    for (double weight : sets->weights) alike = alike && weight == 1;
  keys.require(alike, key, key, " passes over all data alike, without weights; remove ",
               "train_data_weights and weight_by_num_documents, or give train_iters instead");
  std::string of_answers = keys.choice("train_impl"), others;
  keys.require(of_answers == "normal", key, key,
               " counts packed samples, and train_impl: ", of_answers, " (",
               keys.where("train_impl"), ") has answers; give train_iters instead");
  if (data.order != DataOrder::kNeox) others = "data_order";
  if (data.packing != Packing::kPacked) others += others.empty() ? "pack_impl" : " and pack_impl";
  keys.require(others.empty(), key, key, " is GPT-NeoX's order of packed samples; remove ", others,
               ", or give train_iters instead");
  keys.require(config.batch.global.has_value(), key, key,
               " needs train_batch_size: its steps must not depend on the number of ranks");
}

// Steps that follow from another key than train_iters.
struct CountedSteps {
  const char* key;
  int64_t value, steps;
  std::string how;
};

CountedSteps steps_of_epochs(KeyReader& keys, int64_t epochs, const Config& config,
                             const std::function<int64_t(const Config&)>& samples_of_epoch) {
  int64_t samples = samples_of_epoch(config), batch = *config.batch.global;
  int64_t steps = samples * epochs / batch;
  keys.require(steps > 0, "train_epochs", "train_epochs ", epochs, " times ", samples,
               " samples are fewer than a batch, train_batch_size ", batch, " (",
               keys.where("train_batch_size"), ")");
  return {"train_epochs", epochs, steps,
          concat(": ", samples, " samples an epoch, ", batch, " a step")};
}

CountedSteps steps_of_samples(KeyReader& keys, int64_t samples, const Config& config) {
  const char* key = "train_samples";
  keys.require(config.batch.global.has_value(), key, key,
               " needs train_batch_size: its steps must not depend on the number of ranks");
  int64_t steps = batch_schedule(config, *config.batch.global).steps_of(samples);
  keys.require(steps > 0, key, key, " is ", samples, ", less than a step takes");
  return {key, samples, steps, ""};
}

// A batch that grows is given by samples, as in Megatron: steps of it are of unlike size.
void check_ramp_up(KeyReader& keys, const Config& config) {
  const std::string key = "rampup_batch_size";
  if (!config.batch.ramp_up) return;
  keys.require(!keys.given("train_epochs"), key, key, " and train_epochs (",
               keys.where("train_epochs"), ") exclude each other; give train_samples instead");
  std::string example;
  if (keys.given("train_iters"))
    example = concat(": ", keys.integer_from("train_iters", 0) * *config.batch.global,
                     " are as many as train_iters (", keys.where("train_iters"),
                     ") would be of full batches");
  keys.require(keys.given("train_samples"), key, key,
               " makes steps of unlike size, so the run's length is given in samples; give "
               "train_samples instead of train_iters",
               example);
}

int64_t read_iters(KeyReader& keys, const TrainConfig& train, const Config& config,
                   const std::function<int64_t(const Config&)>& samples_of_epoch) {
  check_ramp_up(keys, config);
  bool given = keys.given("train_iters") != nullptr, of_epochs = train.epochs > 0;
  bool counts = of_epochs || train.samples > 0;
  keys.require(!of_epochs || train.samples == 0, "train_samples",
               "train_samples and train_epochs (", keys.where("train_epochs"),
               ") exclude each other; remove one");
  int64_t asked = given || !counts ? keys.integer_from("train_iters", 0) : 0;
  if (of_epochs) check_epochs(keys, config);
  if (!counts || (of_epochs && !samples_of_epoch)) return asked;
  auto [key, value, steps, how] =
      of_epochs ? steps_of_epochs(keys, train.epochs, config, samples_of_epoch)
                : steps_of_samples(keys, train.samples, config);
  keys.require(!given || steps == asked, "train_iters", "train_iters is ", asked, ", but ", key,
               " ", value, " (", keys.where(key), ") are ", steps, " steps", how,
               "; give one of them alone (--set train_iters=null)");
  if (!given) keys.derive("train_iters", std::to_string(steps), key);
  return steps;
}

}  // namespace

TrainConfig read_train(KeyReader& keys, const Config& so_far,
                       const std::function<int64_t(const Config&)>& samples_of_epoch) {
  TrainConfig train;
  if (keys.given("train_epochs")) train.epochs = keys.integer_from("train_epochs", 1);
  if (keys.given("train_samples")) train.samples = keys.integer_from("train_samples", 1);
  train.iters = read_iters(keys, train, so_far, samples_of_epoch);
  train.eval_interval = keys.integer_from("eval_interval", 1);
  train.eval_iters = keys.integer_from("eval_iters", 0);
  train.log_interval = keys.integer_from("log_interval", 1);
  if (keys.maybe_integer("exit_interval"))
    train.exit_interval = keys.integer_from("exit_interval", 0);
  if (auto minutes = keys.maybe_number("exit_duration_in_mins")) {
    keys.require(*minutes > 0, "exit_duration_in_mins", "exit_duration_in_mins is ", *minutes,
                 "; it must be positive");
    train.exit_duration = 60 * *minutes;
  }
  train.seed = keys.integer_from("seed", 0);
  train.recompute = keys.flag("checkpoint_activations");
  train.recompute_layers = keys.integer_from("checkpoint_num_layers", 1);
  train.log_dir = keys.text("log_dir");
  train.tensorboard_dir = read_tensorboard(keys);
  train.profile = read_profile(keys);
  train.sample_prompts = keys.texts("sample_prompts");
  train.memory_profiling = keys.flag("memory_profiling");
  train.diagnostics = read_diagnostics(keys, so_far);
  if (auto peak = keys.maybe_number("peak_theoretical_tflops")) {
    keys.check_positive("peak_theoretical_tflops", *peak);
    train.peak_flops = *peak * 1e12;
  }
  if (keys.given("enable_cuda_graph")) train.cuda_graph = keys.flag("enable_cuda_graph");
  train.sample_tokens = keys.integer_from("maximum_tokens", 1);
  train.wandb = read_wandb(keys);
  train.preference = read_preference(keys, so_far);
  train.by_character = keys.flag("char_level_ppl");
  keys.require(!train.by_character || !train.preference, "char_level_ppl",
               "char_level_ppl is of a loss of tokens, which train_impl: ",
               keys.choice("train_impl"), " (", keys.where("train_impl"), ") has not; remove it");
  train.curriculum = read_curriculum(keys, so_far);
  return train;
}

std::string read_s3_path(KeyReader& keys, const CheckpointConfig& checkpoint) {
  std::string path = keys.text("s3_path");
  if (path.empty()) return path;
  const std::string begin = "s3://";
  keys.require(path.starts_with(begin) && path.size() > begin.size() && path[begin.size()] != '/',
               "s3_path", "s3_path is ", path, "; a place in S3 is s3://bucket/prefix");
  keys.require(!checkpoint.save.empty(), "s3_path",
               "s3_path is given, but save is not, whose checkpoints it would copy");
  return path;
}

CheckpointConfig read_checkpoint(KeyReader& keys) {
  CheckpointConfig checkpoint;
  checkpoint.save = keys.text("save");
  checkpoint.load = keys.text("load");
  if (keys.maybe_integer("iteration")) checkpoint.iteration = keys.integer_from("iteration", 0);
  checkpoint.resume = read_resume(keys, checkpoint);
  bool log = keys.choice("checkpoint_scale") == "log";
  checkpoint.scale = log ? CheckpointScale::kLog : CheckpointScale::kLinear;
  checkpoint.factor = keys.maybe_number("checkpoint_factor").value_or(0);
  const double factor = checkpoint.factor;
  const std::string key = "checkpoint_factor";
  // Below, the first 1000 steps and more would each be saved; saves_at() passes all powers.
  constexpr double kLeast = 1.001;
  if (keys.given(key) && log)
    keys.require(factor >= kLeast, key, key, " is ", shortest(factor),
                 "; with checkpoint_scale: log (", keys.where("checkpoint_scale"),
                 ") it must be at least ", shortest(kLeast), ", such as 2");
  if (keys.given(key) && !log)
    keys.require(factor >= 1 && factor < 0x1p63 && keys.maybe_integer(key), key, key, " is ",
                 shortest(factor),
                 "; with checkpoint_scale: linear it must be a whole number of steps, 1 or more");
  checkpoint.extra_save_iters = keys.integers("extra_save_iters");
  for (int64_t step : checkpoint.extra_save_iters)
    keys.require(step >= 0, "extra_save_iters", "extra_save_iters holds ", step,
                 "; steps are not negative");
  bool any = factor > 0 || !checkpoint.extra_save_iters.empty();
  keys.require(checkpoint.save.empty() || any, "save",
               "save is given, but neither checkpoint_factor nor extra_save_iters says when; add "
               "checkpoint_factor: 1000 for one every 1000 steps");
  if (keys.maybe_integer("keep_last_n_checkpoints"))
    checkpoint.keep_last = keys.integer_from("keep_last_n_checkpoints", 0);
  checkpoint.async_save = keys.flag("async_save");
  checkpoint.s3_path = read_s3_path(keys, checkpoint);
  return checkpoint;
}

GenerateConfig read_generate(KeyReader& keys) {
  GenerateConfig generate;
  generate.max_tokens = keys.integer_from("maximum_tokens", 1);
  generate.top_k = keys.integer_from("top_k", 0);
  generate.temperature = keys.number("temperature");
  keys.require(generate.temperature >= 0, "temperature", "temperature is ",
               shortest(generate.temperature), "; it must not be negative");
  generate.top_p = keys.number_in("top_p", 0, 1);
  generate.prompt_end = keys.text("prompt_end");
  keys.require(!generate.prompt_end.empty(), "prompt_end", "prompt_end is empty");
  return generate;
}

}  // namespace neox
