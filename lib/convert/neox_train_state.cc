#include "convert/neox_train_state.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "config/batch_schedule.h"
#include "convert/neox_shares.h"

namespace neox {
namespace {

using torchfile::Kind;
using torchfile::TorchFile;
using torchfile::Value;

int64_t global_batch(const TorchFile& file, const Config& config) {
  if (auto batch = neox_integer(file, "ds_config.train_batch_size")) return *batch;
  return plan_batch(config, neox_integer(file, "dp_world_size").value_or(1)).global;
}

// DeepSpeed counts the steps since the last overflow; the scale grows at multiples of the window,
// without ZeRO one step behind them.
void add_loss_scale(TrainState& state, const Value& scaler) {
  auto count = [&](const char* key, int64_t otherwise) {
    auto value = scaler.find(key);
    return value && value->is(Kind::kInt) ? value->as_int() : otherwise;
  };
  auto whole = [&](const char* key, int64_t otherwise) {
    auto value = scaler.find(key);
    if (!value || (!value->is(Kind::kInt) && !value->is(Kind::kFloat))) return otherwise;
    return std::max<int64_t>(1, std::llround(value->as_float()));
  };
  state.loss_scale = scaler.at("cur_scale").as_float();
  int64_t since = count("cur_iter", 0) - 1 - count("last_overflow_iter", -1);
  int64_t window = whole("scale_window", 1000);
  bool zero = scaler.find("cur_hysteresis").has_value();
  state.growth = since <= 0 ? 0 : zero ? since % window : (since - 1) % window + 1;
  state.hysteresis = count("cur_hysteresis", 1);
}

}  // namespace

std::optional<int64_t> neox_integer(const TorchFile& file, const char* path) {
  auto value = file.root().find(path);
  if (!value || !value->is(Kind::kInt)) return std::nullopt;
  return value->as_int();
}

void add_train_state(ModelFiles& model, const NeoxFiles& files, const NeoxOptimizer& optimizer) {
  const TorchFile& file = files.states()[0];
  const Config& config = model.config;
  if (config.optimizer.gradient_clipping == 1 && !file.root().find("ds_config.gradient_clipping"))
    log_warning(files.dir().string(),
                ": the run had gradient_clipping: 1 and did not clip, since "
                "GPT-NeoX hands DeepSpeed only what differs from its own defaults; neox-train "
                "clips, and goes on as the run did with gradient_clipping: 0");
  TrainState state{.iteration = model.iteration};
  state.optimizer_steps =
      neox_integer(file, "lr_scheduler.num_iters")
          .value_or(state.iteration - neox_integer(file, "skipped_steps").value_or(0));
  state.global_batch = global_batch(file, config);
  BatchSchedule batches = batch_schedule(config, state.global_batch);
  state.consumed_samples = batches.samples_of(state.iteration);
  state.dataset_samples = samples_of_run(config, batches);
  if (config.precision.type == Precision::kFp16) {
    auto scaler = loss_scaler(optimizer.first_file());
    check_io(scaler.has_value(), file.name(),
             " is of a run in fp16, but its optimizer has no loss scale (cur_scale)");
    add_loss_scale(state, *scaler);
  }
  if (int64_t step = optimizer.step(); step > 0 && step != state.optimizer_steps)
    model.ignored.push_back({concat("step ", step, " of the optimizer"),
                             concat("the correction of the moments goes on from ",
                                    state.optimizer_steps, ", the step of the learning rate")});
  model.train = state;
}

}  // namespace neox
