#include "generate/load.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cinttypes>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "checkpoint/layout.h"
#include "config/architecture.h"
#include "config/keys.h"
#include "config/value.h"
#include "model/parameters.h"
#include "ops/cpu_arena.h"
#include "tokenizer/of_config.h"
#include "tokenizer/special_tokens.h"

namespace neox {

namespace fs = std::filesystem;
Dtypes dtypes_of(Precision precision) {
  switch (precision) {
    case Precision::kFp64:
      return {at::kDouble, at::kDouble, at::kDouble};
    case Precision::kFp16:
      return {at::kHalf, at::kFloat, at::kFloat};
    case Precision::kBf16:
      return {at::kBFloat16, at::kFloat, at::kFloat};
    default:
      return {at::kFloat, at::kFloat, at::kFloat};
  }
}

namespace {

// eos_token_id is a number, or a list of them; ids that the tokenizer does not have end nothing.
std::vector<int32_t> ends_of(const fs::path& file, int64_t vocab) {
  std::vector<int32_t> ids;
  try {
    const nlohmann::json all = nlohmann::json::parse(read_file(file));
    auto add = [&](const nlohmann::json& id) {
      if (id.is_number_integer() && id >= 0 && id < vocab) ids.push_back(id.get<int32_t>());
    };
    auto ends = all.find("eos_token_id");
    if (ends != all.end() && ends->is_array())
      std::ranges::for_each(*ends, add);
    else if (ends != all.end())
      add(*ends);
  } catch (const nlohmann::json::exception& e) {
    log_warning(file.string(), " is not readable JSON (", e.what(),
                "); which tokens end a text is taken from the tokenizer alone");
  }
  return ids;
}

// The eos_token that a tokenizer's files name, which neox-prepare-data puts behind conversations.
std::optional<int32_t> eos_token(const fs::path& directory, const Tokenizer& tokenizer) try {
  const auto named = named_tokens_in(directory);
  auto eos = named.find("eos_token");
  std::vector<int32_t> ids;
  if (eos != named.end()) tokenizer.encode_plain(eos->second, ids);
  return ids.size() == 1 ? std::optional(ids[0]) : std::nullopt;
} catch (const Error& e) {
  log_warning(e.what(), "; which tokens end a text is taken from other files");
  return std::nullopt;
}

// What ends a text by the files that came along with a model.
std::vector<int32_t> ends_in(const fs::path& companions, const Tokenizer& tokenizer) {
  std::error_code error;
  std::vector<int32_t> ends;
  for (const char* name : {"generation_config.json", "config.json"})
    if (fs::path file = companions / name; ends.empty() && fs::is_regular_file(file, error))
      ends = ends_of(file, tokenizer.vocab_size());
  if (auto id = eos_token(companions, tokenizer)) ends.push_back(*id);
  return ends;
}

void say_effect(const std::string& assignment) {
  std::string key = assignment.substr(0, assignment.find('='));
  const KeyRow* row = find_key(key);
  if (row && row->fate == Fate::kNoEffect)
    log_warning("--set ", key, " has no effect: ", row->words);
}

// The configuration that the checkpoint keeps, with those overrides, for its model.
Config config_of_texts(const Checkpoint& checkpoint, const std::vector<std::string>& overrides) {
  const TrainState& state = checkpoint.state();
  std::string dir = checkpoint.dir().string();
  ConfigOptions sources{.texts = {{dir, state.config}}};
  ConfigOptions changed = sources;
  changed.overrides = overrides;
  Config config = load_config(changed);
  std::ranges::for_each(overrides, say_effect);
  config.model.vocab = state.padded_vocab;
  bool chosen = std::ranges::any_of(
      overrides, [](const std::string& each) { return each.starts_with("vocab_file="); });
  if (!chosen) follow_tokenizer(config.tokenizer, checkpoint.dir().parent_path() / kCompanionDir);
  check_usage(!config.model.scores, dir,
              " holds a reward model (train_impl: rm), which rates texts and writes none; "
              "neox-convert --to hf makes it one of sequence classification for transformers");
  auto fits_saved = [&] {
    ModelConfig saved = load_config(sources).model;
    return has_architecture(config.model, state.architecture, &saved);
  };
  check_usage(has_architecture(config.model, state.architecture) || fits_saved(), dir,
              " holds another model than --set says.\n  there: ", state.architecture,
              "\n  --set: ", architecture(config.model),
              "\nLeave out the --set keys that change it.");
  return config;
}

}  // namespace

std::string fingerprint_text(const Tokenizer& tokenizer) {
  return printed("%016" PRIx64, tokenizer.fingerprint());
}

void check_tokenizer_of(const TrainState& state, const Config& config, const Tokenizer& tokenizer,
                        const fs::path& dir, bool warns) {
  const TokenizerConfig& named = config.tokenizer;
  std::string name =
      named.vocab_file.empty()
          ? concat(config.where("tokenizer_type"), ": the tokenizer ", named.type)
          : concat(config.where("vocab_file"), ": the tokenizer ", named.vocab_file.string());
  int64_t entries = tokenizer.vocab_size();
  check_usage(entries <= state.padded_vocab, name, " has ", entries, " entries, but the model of ",
              dir.string(), " has room for ", state.padded_vocab,
              ": if it is not the one that the model was trained with, give that one (vocab_file, "
              "--vocab-file); if the model came with it, convert the model again with "
              "neox-convert --padded-vocab ",
              entries);
  if (warns && !state.tokenizer_hash.empty() && state.tokenizer_hash != fingerprint_text(tokenizer))
    log_warning(name, " is not the one that the model of ", dir.string(),
                " was trained with: its tokens are others");
}

std::vector<int32_t> ends_of_texts(const fs::path& run_dir, const fs::path& vocab,
                                   const Tokenizer& tokenizer) {
  std::vector<int32_t> ends = ends_in(run_dir / kCompanionDir, tokenizer);
  if (ends.empty()) ends = ends_in(vocab.parent_path(), tokenizer);
  if (tokenizer.has_end_of_document()) ends.push_back(tokenizer.end_of_document());
  return ends;
}

LoadedModel::LoadedModel(const fs::path& dir, const std::vector<std::string>& overrides,
                         at::Device device)
    : for_texts_(device) {
  if (device.is_cpu()) use_cpu_arena();  // steps read all weights, a quarter faster from huge pages
  Checkpoint checkpoint(checkpoint_in(dir));
  const TrainState& state = checkpoint.state();
  config_ = config_of_texts(checkpoint, overrides);
  tokenizer_ = load_tokenizer(config_);
  check_usage(tokenizer_ != nullptr, checkpoint.dir().string(),
              ": its run named no tokenizer; give one with --vocab-file (and --merge-file)");
  check_tokenizer_of(state, config_, *tokenizer_, checkpoint.dir(), true);
  ends_ = ends_of_texts(checkpoint.dir().parent_path(), config_.tokenizer.vocab_file, *tokenizer_);
  world_ = self_communicator();
  mesh_ = std::make_unique<Mesh>(Layout{}, *world_);
  // A CPU has no fast products of fp16, and float holds what they hold.
  bool half = device.is_cpu() && config_.precision.type == Precision::kFp16;
  Dtypes dtypes = dtypes_of(half ? Precision::kFp32 : config_.precision.type);
  dtypes.state = dtypes.param;  // no optimizer, so no master copy
  model_ = std::make_unique<GptNeoX>(config_.model, *mesh_,
                                     ModelOptions{.start = ModelOptions::kZeros,
                                                  .dtypes = dtypes,
                                                  .device = device,
                                                  .keeping = Keeping::kNoGradients,
                                                  .packing = WeightPacking::kWhereFaster});
  read_parameters(checkpoint, *model_);
}

std::filesystem::path checkpoint_option(const Program& program, const std::string& name) {
  check_usage(program.has("checkpoint"), "which checkpoint? Give the save directory of a run. See ",
              name, " --help.");
  return program.get<std::string>("checkpoint");
}

std::vector<std::string> override_options(const Program& program) {
  std::vector<std::string> overrides = program.list("set");
  if (auto vocab = program.given<std::string>("vocab-file"))
    overrides.push_back("vocab_file=" + yaml_text(*vocab));
  if (auto merges = program.given<std::string>("merge-file"))
    overrides.push_back("merge_file=" + yaml_text(*merges));
  return overrides;
}

namespace {

// Each of the copies, which are several, has filled its part_of_copies().
void share_parts(const at::Tensor& flat, Communicator& copies, at::Device device) {
  at::Tensor all = flat.to(device);
  int64_t part = part_of_copies(all.numel(), 0, copies.size()).second, even = part * copies.size();
  at::Tensor full = all.narrow(0, 0, even), rest = all.narrow(0, even, all.numel() - even);
  copies.all_gather(full.narrow(0, part * copies.rank(), part), full);
  copies.broadcast(rest, copies.size() - 1);
  if (!all.is_alias_of(flat)) flat.copy_(all);
}

}  // namespace

void read_state(const Checkpoint& checkpoint, std::span<const StateChunk> chunks, GptNeoX& model,
                const std::function<void()>& meet) {
  at::NoGradGuard no_grad;
  Communicator& replicas = model.mesh().replicate();
  std::vector<StateChunk> parts;
  for (const StateChunk& chunk : chunks)
    parts.push_back(
        elements_of(chunk, part_of_copies(chunk.data.numel(), replicas.rank(), replicas.size())));
  checkpoint.read(parts, model.mesh().world().rank());
  meet();
  if (replicas.size() > 1)
    for (const StateChunk& chunk : chunks)
      share_parts(chunk.data, replicas, model.hidden_options().device());
}

void read_parameters(const Checkpoint& checkpoint, GptNeoX& model,
                     const std::function<void()>& meet) {
  std::vector<StateChunk> chunks;
  for (ParamBuffer* buffer : model.buffers())
    chunks.push_back({buffer->name(), "param", buffer->master(), buffer->placements()});
  read_state(checkpoint, chunks, model, meet);
  for (ParamBuffer* buffer : model.buffers()) buffer->publish();
}

}  // namespace neox
