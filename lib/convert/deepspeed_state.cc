#include "convert/deepspeed_state.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

std::optional<std::string> tag_in(const fs::path& dir) {
  fs::path latest = dir / "latest";
  std::error_code error;
  // A directory of that name is another program's.
  if (!fs::is_regular_file(latest, error)) return std::nullopt;
  return std::string(trim(read_file(latest)));
}

bool is_step(const fs::path& dir, const std::string& tag) {
  std::error_code error;  // of a text that can be no name
  return !tag.empty() && fs::is_directory(dir / tag, error);
}

}  // namespace

using torchfile::Item;

Item::Entries deepspeed_state(Item module, int64_t iteration, int64_t model_ranks) {
  return {{"module", std::move(module)},
          {"buffer_names", Item::list({})},
          {"optimizer", Item()},
          {"param_shapes", Item()},
          {"frozen_param_shapes", Item()},
          {"shared_params", Item()},
          {"frozen_param_fragments", Item()},
          {"lr_scheduler", Item()},
          {"data_sampler", Item()},
          {"random_ltd", Item()},
          {"sparse_tensor_module_names", Item::list({})},
          {"skipped_steps", 0},
          {"global_steps", iteration},
          {"global_samples", 0},
          {"dp_world_size", 1},
          {"mp_world_size", model_ranks},
          {"ds_config", Item::dict({})},
          {"ds_version", "0.10.0"}};
}

std::optional<fs::path> named_by_latest(const fs::path& dir) {
  auto tag = tag_in(dir);
  return tag && is_step(dir, *tag) ? std::optional(dir / *tag) : std::nullopt;
}

void check_latest(const fs::path& dir) {
  auto tag = tag_in(dir);
  check_io(!tag || is_step(dir, *tag), (dir / "latest").string(), " names '",
           tag.value_or("").substr(0, 40),
           "', which is no directory beside it; name a global_step directory");
}

}  // namespace neox
