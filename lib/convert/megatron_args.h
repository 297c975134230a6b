// The command line that Megatron-LM and Megatron-DeepSpeed keep in a checkpoint (args, an
// argparse.Namespace) as GPT-NeoX's keys, and the other way round.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/config.h"
#include "torchfile/torch_writer.h"
#include "torchfile/value.h"

namespace neox {

// One of its values by name. None is as if absent. Throws (74) where it has another type.
class MegatronArgs {
 public:
  MegatronArgs(torchfile::Value args, std::string where);
  MegatronArgs(nlohmann::json args, std::string where)
      : args_(std::move(args)), where_(std::move(where)) {}
  bool has(const char* name) const { return find(name) != nullptr; }
  const nlohmann::json* find(const char* name) const;  // null where there is none
  std::optional<int64_t> maybe_integer(const char* name) const;
  int64_t integer(const char* name) const;  // throws (74) where there is none
  double number(const char* name, double fallback) const;
  bool flag(const char* name, bool fallback) const;
  std::string text(const char* name, const std::string& fallback) const;
  const std::string& where() const { return where_; }

 private:
  nlohmann::json args_;
  std::string where_;
};

// As a configuration. Throws (74) naming what changes what the model computes and is not supported.
std::string megatron_yaml(const MegatronArgs& args);

// Of the norm of embeddings (--embed-layernorm), whatever that of the others is.
constexpr double kEmbeddingNormEpsilon = 1e-5;

enum class MegatronKind {
  kMegatron,
  kDeepSpeed,
  kBigScience,  // the fork of Megatron-DeepSpeed that has ALiBi and a norm of embeddings
};
struct MegatronLayout {
  MegatronKind kind = MegatronKind::kMegatron;
  bool thirds = false;  // of kDeepSpeed: as it is since December 2024
  int64_t tensor = 1, pipeline = 1;
};

// Megatron-DeepSpeed, or the fork where the model needs it.
MegatronKind deepspeed_kind(const ModelConfig& model);
// Throws (64) naming what the model has and Megatron does not.
void check_expressible(const ModelConfig& model, const MegatronLayout& layout);
// Of a model that it has, to be padded to a multiple of vocab_multiple x tensor.
torchfile::Item megatron_args(const Config& config, const MegatronLayout& layout,
                              int64_t vocab_multiple, int64_t iteration);

}  // namespace neox
