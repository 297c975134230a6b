// A model of one rank from a checkpoint, with the tokenizer it was trained with.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/gpt_neox.h"
#include "model/gpus.h"
#include "tokenizer/tokenizer.h"

namespace neox {

class Program;

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
  // ends_of_texts() of it.
  const std::vector<int32_t>& ends() const { return ends_; }

 private:
  UnplannedAttention for_texts_;
  Config config_;
  std::vector<int32_t> ends_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<GptNeoX> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// What programs say of LoadedModel: --checkpoint, which `name` must have, and --set with
// --vocab-file and --merge-file.
std::filesystem::path checkpoint_option(const Program& program, const std::string& name);
std::vector<std::string> override_options(const Program& program);

// Fills the chunks, which are masters and optimizer states of the model. Replicas hold the same:
// each reads a part of it, and they send each other theirs. Collective over the model's mesh;
// meet() is called before ranks exchange what each has read.
void read_state(
    const Checkpoint& checkpoint, std::span<const StateChunk> chunks, GptNeoX& model,
    const std::function<void()>& meet = [] {});

// The parameters of a model without an optimizer, likewise, and publishes them.
void read_parameters(
    const Checkpoint& checkpoint, GptNeoX& model, const std::function<void()>& meet = [] {});

// As in TrainState::tokenizer_hash.
std::string fingerprint_text(const Tokenizer& tokenizer);
// Throws where the config's tokenizer has more entries than the model of `dir` has rows, and warns,
// if `warns`, where the model was trained with another.
void check_tokenizer_of(const TrainState& state, const Config& config, const Tokenizer& tokenizer,
                        const std::filesystem::path& dir, bool warns);

// The tokens that end a text: what the files say that came along with a model which was converted
// into run_dir, or that lie beside its tokenizer; and the tokenizer's end of a document.
std::vector<int32_t> ends_of_texts(const std::filesystem::path& run_dir,
                                   const std::filesystem::path& vocab, const Tokenizer& tokenizer);

// The tensor types of a precision.
Dtypes dtypes_of(Precision precision);

}  // namespace neox
