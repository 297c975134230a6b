// The formats that models are read from and written to.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "convert/model_files.h"

namespace neox {

struct Target {
  fs::path dir;        // exists, is empty, and will get the name
  fs::path final_dir;  // of the whole
  int64_t max_shard_bytes = 5'000'000'000;
  int64_t tensor_parallel = 1, pipeline_parallel = 1;  // ranks that the files are for
};

struct Format {
  const char* name;
  const char* words;
  enum class Holds { kWeights, kTraining } holds;
  // Are its files for ranks, as many as the target says?
  enum class Files { kWhole, kForRanks } files;
  // Does the directory (or file) look like it?
  bool (*is_there)(const fs::path& path);
  // Reads names and configuration, no tensors. Throws for what it cannot read completely.
  ModelFiles (*open)(const fs::path& path);
  // Its tensors by the names that the files give them, for looking at them.
  std::shared_ptr<const TensorSource> (*open_tensors)(const fs::path& path);
  // Writes all files into target.dir, a tensor or a layer in memory at a time.
  void (*write)(const ModelFiles& model, const Target& target);
};

std::span<const Format> formats();
// Throws (64) for a name that is not known.
const Format& format_named(const std::string& name);
// Throws (74) where the path looks like no format, or like more than one.
const Format& detect_format(const fs::path& path);
// That of the name, or what the path looks like where that is "".
const Format& format_of(const fs::path& path, const std::string& name);

bool is_hf(const fs::path& path);
ModelFiles open_hf(const fs::path& path);
void write_hf(const ModelFiles& model, const Target& target);

// LLaMA as Meta publishes it: params.json and consolidated.00.pth ...
bool is_meta(const fs::path& path);
ModelFiles open_meta(const fs::path& path);
std::shared_ptr<const TensorSource> open_meta_tensors(const fs::path& path);
// Throws (64): it is read, not written.
void write_meta(const ModelFiles& model, const Target& target);

bool is_neox_cpp(const fs::path& path);
ModelFiles open_neox_cpp(const fs::path& path);
// Throws (74) saying what is missing where the path holds checkpoints of neox.cpp and none is
// complete.
void check_no_unfinished_neox_cpp(const fs::path& path);
std::shared_ptr<const TensorSource> open_neox_cpp_tensors(const fs::path& path);
void write_neox_cpp(const ModelFiles& model, const Target& target);

bool is_neox(const fs::path& path);
ModelFiles open_neox(const fs::path& path);
std::shared_ptr<const TensorSource> open_neox_tensors(const fs::path& path);
void write_neox(const ModelFiles& model, const Target& target);
// Of February to November 2024 with num_kv_heads, whose files say nothing of it: for each query its
// rows and slices of key and value.
ModelFiles open_neox_slots(const fs::path& path);
// Throws (64): it is read, not written.
void write_neox_slots(const ModelFiles& model, const Target& target);

// The file of that name that goes along, or null.
const Companion* companion(const ModelFiles& model, const std::string& name);
// Makes the tokenizer that the configuration names go along; false where it names none, or none
// that can be read.
bool add_tokenizer(ModelFiles& model);
// The same with what lies beside it, from Hugging Face; where there is none, what is in
// `otherwise`.
void add_run_companions(ModelFiles& model, const fs::path& otherwise = {});
// Of the companions, the tokenizer that counts; none where there is none of a kind that is known.
void choose_tokenizer(ModelFiles& model);
// Its entries; nothing where there is none, or one that can't be read (why: the reason).
std::optional<int64_t> entries_of(const ModelFiles& model, std::string* why = nullptr);
// make_vocab_size_divisible_by with which GPT-NeoX and Megatron pad its entries to the rows of the
// model on so many tensor-parallel ranks: the run's own where that does, else all rows of a rank.
int64_t vocab_multiple(const ModelFiles& model, int64_t tensor);
// Where they lie beside checkpoints of GPT-NeoX's and Megatron's.
inline constexpr const char* kTokenizerDir = "tokenizer";
// Copies the files that go along into the directory.
void copy_companions(const ModelFiles& model, const fs::path& dir);

}  // namespace neox
