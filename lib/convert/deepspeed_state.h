// What DeepSpeed's engine looks for in its files of states, beside what the program put there.
#pragma once
#include <cstdint>

#include "torchfile/torch_writer.h"

namespace neox {

// Of a model without the optimizer's state after that many steps (runtime/engine.py of DeepSpeed
// 0.10 to 0.16). model_ranks: those that share the model.
torchfile::Item::Entries deepspeed_state(torchfile::Item module, int64_t iteration,
                                         int64_t model_ranks);

}  // namespace neox
