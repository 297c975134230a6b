// Checkpoints of Megatron-LM and Megatron-DeepSpeed: what their layouts come down to.
#pragma once
#include <memory>
#include <optional>

#include "convert/formats.h"
#include "convert/megatron_args.h"
#include "convert/megatron_parts.h"

namespace neox {

// Everything of one checkpoint, its files opened, no tensor read.
struct MegatronFiles {
  fs::path dir;       // of the checkpoint: iter_0001000, global_step1000
  TensorParts parts;  // by megatron_name_now(), layers numbered over all stages
  std::shared_ptr<const torchfile::TorchFile> main;  // has args
  torchfile::Value args;
  double version = 0;     // checkpoint_version
  int64_t iteration = 0;  // 0: released weights
};

// Each throws (74) naming the file or rank that is missing, damaged, or of another checkpoint.
// `path`: a save directory with latest_checkpointed_iteration.txt, or a directory of a checkpoint.
MegatronFiles open_megatron_files(const fs::path& path);
MegatronFiles open_megatron_deepspeed_files(const fs::path& path);
MegatronFiles open_megatron_dist_files(const fs::path& path);

// The directory of the checkpoint; nothing where there is none. Reads no more than
// latest_checkpointed_iteration.txt.
std::optional<fs::path> megatron_step(const fs::path& path, const char* format);

// The formats. Rows of queries, keys and values lie as args and checkpoint_version say, or, asked
// for by the name of a format, in thirds.
bool is_megatron(const fs::path& path);
ModelFiles open_megatron(const fs::path& path);
std::shared_ptr<const TensorSource> open_megatron_tensors(const fs::path& path);
void write_megatron(const ModelFiles& model, const Target& target);

bool is_megatron_deepspeed(const fs::path& path);
ModelFiles open_megatron_deepspeed(const fs::path& path);
std::shared_ptr<const TensorSource> open_megatron_deepspeed_tensors(const fs::path& path);
void write_megatron_deepspeed(const ModelFiles& model, const Target& target);

ModelFiles open_megatron_deepspeed_thirds(const fs::path& path);
void write_megatron_deepspeed_thirds(const ModelFiles& model, const Target& target);

bool is_megatron_dist(const fs::path& path);
ModelFiles open_megatron_dist(const fs::path& path);
std::shared_ptr<const TensorSource> open_megatron_dist_tensors(const fs::path& path);
// Throws (64): torch_dist is read, not written.
void write_megatron_dist(const ModelFiles& model, const Target& target);

}  // namespace neox
