// What decides the tensors of a model, as a text that checkpoints keep.
#pragma once
#include <string>

#include "config/model_config.h"

namespace neox {

// Text that is equal for two models exactly if their tensors have the same names and shapes and
// mean the same.
std::string architecture(const ModelConfig& config);
// The model with the rotary angles of another one: its parameters fit any, so that a context may be
// extended.
ModelConfig with_angles_of(ModelConfig model, const ModelConfig& other);

}  // namespace neox
