// What decides the tensors of a model, as a text that checkpoints keep.
#pragma once
#include <string>

#include "config/model_config.h"

namespace neox {

// Text that is equal for two models exactly if their tensors have the same names and shapes and
// mean the same.
std::string architecture(const ModelConfig& config);
// Whether that is the model's; where `other` is given, also if it has the rotary angles of that
// one, so that a context may be extended, or is a reward model with another head than that one.
bool has_architecture(ModelConfig model, const std::string& text,
                      const ModelConfig* other = nullptr);

}  // namespace neox
