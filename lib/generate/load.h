// A model of one rank from a checkpoint, with the tokenizer it was trained with.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/gpt_neox.h"
#include "tokenizer/tokenizer.h"

namespace neox {

// The parameters alone, from a run directory (its newest complete checkpoint) or a global_step
// directory, saved at any layout. Overrides are those of --set, on top of the configuration that
// the checkpoint keeps.
class LoadedModel {
 public:
  LoadedModel(const std::filesystem::path& dir, const std::vector<std::string>& overrides,
              at::Device device);
  GptNeoX& model() { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const Config& config() const { return config_; }
  int64_t iteration() const { return iteration_; }
  // The tokens that end a text: the tokenizer's end of a document, and what the files of a model
  // that was converted say (eos_token_id of hf/generation_config.json, or of hf/config.json).
  const std::vector<int32_t>& ends() const { return ends_; }

 private:
  Config config_;
  int64_t iteration_ = 0;
  std::vector<int32_t> ends_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<GptNeoX> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// Of a model without an optimizer, saved at any layout. Collective over the model's mesh; meet() is
// called before ranks exchange what each has read.
void read_parameters(
    const Checkpoint& checkpoint, GptNeoX& model, const std::function<void()>& meet = [] {});

// The tensor types of a precision.
Dtypes dtypes_of(Precision precision);

}  // namespace neox
