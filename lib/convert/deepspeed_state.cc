#include "convert/deepspeed_state.h"

#include <utility>

namespace neox {

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

}  // namespace neox
