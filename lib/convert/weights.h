// The tensors of a model of Hugging Face: model.safetensors or pytorch_model.bin, alone or as
// several files with an index.
#pragma once
#include <memory>

#include "base/file.h"
#include "convert/tensor_source.h"

namespace neox {

// Is it a file of tensors, by its name? A directory of such a name is none.
bool is_weights_file(const fs::path& path);
// Does a directory have a file of tensors, or their index?
bool has_weights(const fs::path& dir);

// Of a file, or of a directory; safetensors where both are there, as transformers does. Throws (74)
// where there are none, where files and index disagree, or where a file cannot be read completely.
std::unique_ptr<TensorSource> open_weights(const fs::path& path);

}  // namespace neox
