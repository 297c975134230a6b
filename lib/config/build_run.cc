// Data, the training loop, checkpoints, generation.
#include <charconv>

#include "base/text.h"
#include "config/build.h"

namespace neox {
namespace {

std::vector<std::string> read_paths(KeyReader& keys, const std::string& name) {
  std::string key = name + "_data_paths", weights = name + "_data_weights";
  std::vector<std::string> paths = keys.texts(key);
  keys.require(paths.size() <= 1, key, key, " names ", paths.size(),
               " data sets; blending is not supported yet, so merge them into one");
  keys.require(paths.empty() || !paths[0].empty(), key, key, " holds an empty name");
  std::vector<double> weight = keys.numbers(weights);
  keys.mark(weights, Effect::kInput);
  keys.require(weight.size() <= 1, weights, weights, " holds ", weight.size(),
               " weights; blending is not supported yet");
  return paths;
}

// NeoX's rule: the separator is "," where there is one, else "/"; then numbers, of which missing
// ones are 0.
void check_split(const KeyReader& keys, const std::string& text) {
  const std::string form =
      "; write three shares of training, validation and test, such as \"969, 30, 1\"";
  double sum = 0;
  auto shares = split(text, text.find(',') != text.npos ? ',' : '/');
  for (const std::string& part : shares) {
    std::string_view number = trim(part);
    double share = 0;
    auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), share);
    bool good =
        error == std::errc() && end == number.data() + number.size() && share >= 0 && share < 1e18;
    keys.require(good, "split", "split is \"", text, "\", in which \"", number, "\" is no share",
                 form);
    sum += share;
  }
  keys.require(shares.size() <= 3, "split", "split is \"", text, "\", with ", shares.size(),
               " shares", form);
  keys.require(sum > 0, "split", "split is \"", text, "\", with a sum of 0", form);
}

}  // namespace

DataConfig read_data(KeyReader& keys) {
  DataConfig data;
  data.data_path = keys.text("data_path");
  data.train_paths = read_paths(keys, "train");
  data.valid_paths = read_paths(keys, "valid");
  data.test_paths = read_paths(keys, "test");
  for (const char* key : {"train_data_paths", "valid_data_paths", "test_data_paths"}) {
    bool given = keys.given(key) && !keys.given(key)->items.empty();
    keys.require(!given || data.data_path.empty(), key, key, " and data_path (",
                 keys.where("data_path"), ") exclude each other; remove one");
    keys.require(!given || !data.train_paths.empty(), key, key,
                 " is given without train_data_paths; give that too");
  }
  data.split = keys.text("split");
  check_split(keys, data.split);
  data.seed = keys.integer_from("seed", 0);
  keys.require(data.seed <= 4294967295, "seed", "seed is ", data.seed,
               "; the order of the samples takes seeds up to 4294967295");
  data.eod_mask_loss = keys.flag("eod_mask_loss");
  data.reset_attention_mask = keys.flag("reset_attention_mask");
  data.reset_position_ids = keys.flag("reset_position_ids");
  return data;
}

TrainConfig read_train(KeyReader& keys) {
  TrainConfig train;
  train.iters = keys.integer_from("train_iters", 1);
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
  train.tensorboard_dir = keys.text("tensorboard_dir");
  train.sample_prompts = keys.texts("sample_prompts");
  train.sample_tokens = keys.integer_from("maximum_tokens", 1);
  if (const Value* wandb = keys.given("use_wandb"); wandb && wandb->is_true())
    keys.note(concat(wandb->place.text(),
                     ": use_wandb: there is no Weights & Biases here; the metrics are TensorBoard "
                     "files (tensorboard_dir), which `wandb sync` uploads"));
  return train;
}

CheckpointConfig read_checkpoint(KeyReader& keys) {
  CheckpointConfig checkpoint;
  checkpoint.save = keys.text("save");
  checkpoint.load = keys.text("load");
  if (keys.maybe_integer("iteration")) checkpoint.iteration = keys.integer_from("iteration", 0);
  bool log = keys.choice("checkpoint_scale") == "log";
  checkpoint.scale = log ? CheckpointScale::kLog : CheckpointScale::kLinear;
  checkpoint.factor = keys.maybe_number("checkpoint_factor").value_or(0);
  const double factor = checkpoint.factor;
  const std::string key = "checkpoint_factor";
  if (keys.given(key) && log)
    keys.require(factor > 1, key, key, " is ", shortest(factor), "; with checkpoint_scale: log (",
                 keys.where("checkpoint_scale"), ") it must be greater than 1, such as 2");
  if (keys.given(key) && !log)
    keys.require(factor >= 1 && keys.maybe_integer(key), key, key, " is ", shortest(factor),
                 "; with checkpoint_scale: linear it must be a whole number of steps");
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
  return generate;
}

}  // namespace neox
