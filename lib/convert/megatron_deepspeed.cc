// Megatron-DeepSpeed's checkpoints: mp_rank files that hold the model, or the layers of a pipeline.
#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "convert/deepspeed_state.h"
#include "convert/megatron.h"
#include "convert/megatron_names.h"
#include "convert/megatron_tree.h"

namespace neox {
namespace {

using torchfile::Kind;
using torchfile::TorchFile;
using torchfile::Value;

struct Found {
  std::map<std::pair<int64_t, int64_t>, fs::path> layers;  // by layer and tensor-parallel rank
  std::map<int64_t, fs::path> states;                      // by mp_rank
};

// The numbers in a file's name, which must be the whole of the format.
template <class... Numbers>
bool reads_as(const std::string& name, const char* format, Numbers*... numbers) {
  int end = 0;
  int read = std::sscanf(name.c_str(), format, numbers..., &end);
  return read == static_cast<int>(sizeof...(numbers)) && end == static_cast<int>(name.size());
}

Found list_files(const fs::path& dir) {
  Found found;
  for (const auto& entry : fs::directory_iterator(dir)) {
    std::string name = entry.path().filename().string();
    int a = 0, b = 0;
    if (reads_as(name, "layer_%d-model_%d-model_states.pt%n", &a, &b))
      found.layers[{a, b}] = entry.path();
    else if (reads_as(name, "mp_rank_%d_model_states.pt%n", &a))
      found.states[a] = entry.path();
    bool stage3 = reads_as(name, "zero_pp_rank_%d_mp_rank_%d_model_states.pt%n", &a, &b);
    check_io(!stage3, entry.path().string(),
             " is of ZeRO 3, which keeps parameters in pieces; DeepSpeed's zero_to_fp32.py joins "
             "them");
    check_io(name.find("expert_") == std::string::npos, entry.path().string(),
             " is of experts, which are not supported");
  }
  return found;
}

fs::path step_directory(const fs::path& path) {
  if (auto named = named_by_latest(path)) return *named;
  return megatron_step(path, "global_step%d").value_or(path);
}

// Where a layer of the pipeline is in the model.
std::string prefix_of(int64_t layer, const PipelineNumbers& numbers) {
  const std::string model = "language_model.";
  int64_t number = layer - numbers.first();
  if (layer == 1) return model + "embedding.";
  if (number >= 0 && number < numbers.layers) return concat(model, "encoder.layers.", number, ".");
  if (layer == numbers.norm()) return model + "encoder.final_layernorm.";
  return layer == numbers.head() ? model : concat("layer_", layer, ".");
}

bool has_layer(const Found& found, int64_t layer) {
  auto at = found.layers.lower_bound({layer, 0});
  return at != found.layers.end() && at->first.first == layer;
}

int64_t world_of(const MegatronFiles& all) {
  return static_cast<int64_t>(number_at(all.main->root(), "mp_world_size"));
}

void check_of_one_step(const TorchFile& a, const TorchFile& b) {
  check_same_numbers(a, b, {"iteration", "global_steps", "mp_world_size", "checkpoint_version"});
}

// With a pipeline, DeepSpeed's mp_world_size counts the stages too: a rank and a stage have an
// mp_rank file.
void check_states(const MegatronFiles& all, const Found& found) {
  auto files = static_cast<int64_t>(found.states.size());
  int64_t world = world_of(all), last = found.states.rbegin()->first;
  check_io(last + 1 == files && (world == 0 || world == files), all.main->name(),
           ": mp_world_size is ", world, ", but ", files, " mp_rank files are there, to mp_rank_",
           last < 10 ? "0" : "", last, "; some are missing, or of another run");
  for (const auto& [rank, path] : found.states)
    if (rank > 0) check_of_one_step(*all.main, TorchFile(path));
}

void add_layers(MegatronFiles& all, const Found& found) {
  check_states(all, found);
  MegatronArgs args(all.args, all.main->name());
  // A function's layer has no file.
  PipelineNumbers numbers{.layers = args.integer("num_layers"),
                          .turns = !has_layer(found, 2) && has_layer(found, 3)};
  int64_t ranks = args.maybe_integer("tensor_model_parallel_size").value_or(1);
  for (const auto& [at, path] : found.layers) ranks = std::max(ranks, at.second + 1);
  for (const auto& [at, path] : found.layers) {
    for (int64_t rank = 0; rank < ranks; ++rank)
      check_io(found.layers.contains({at.first, rank}), path.string(),
               " has no file beside it for tensor-parallel rank ", rank, " of ", ranks);
    auto file = std::make_shared<TorchFile>(path);
    add_tree(all.parts, {.file = file,
                         .tree = file->root(),
                         .rank = at.second,
                         .prefix = prefix_of(at.first, numbers)});
  }
  check_ranks(all.parts, ranks, all.dir.string());
}

void add_modules(MegatronFiles& all, const Found& found) {
  int64_t ranks = std::max(found.states.rbegin()->first + 1, world_of(all));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    auto path = found.states.find(rank);
    check_io(path != found.states.end(), all.dir.string(), " lacks mp_rank_", rank < 10 ? "0" : "",
             rank, "_model_states.pt: the model is for ", ranks, " tensor-parallel ranks");
    auto file = rank == 0 ? all.main : std::make_shared<const TorchFile>(path->second);
    check_of_one_step(*all.main, *file);
    check_io(file->at("module").is(Kind::kDict), file->name(), " has no module, and there are no ",
             "layer files");
    add_tree(all.parts, {.file = file, .tree = file->at("module"), .rank = rank});
  }
  check_ranks(all.parts, ranks, all.dir.string());
}

}  // namespace

bool is_megatron_deepspeed(const fs::path& path) {
  if (!fs::is_directory(path)) return false;
  fs::path dir = step_directory(path), states = dir / "mp_rank_00_model_states.pt";
  if (!fs::is_directory(dir) || !fs::exists(states)) return false;
  // GPT-NeoX's embedding is layer 0, and its module is flat.
  if (fs::exists(dir / "layer_00-model_00-model_states.pt")) return false;
  if (fs::exists(dir / "layer_01-model_00-model_states.pt")) return true;
  return TorchFile(states).root().find("module.language_model").has_value();
}

MegatronFiles open_megatron_deepspeed_files(const fs::path& path) {
  check_latest(path);
  fs::path dir = step_directory(path);
  check_io(fs::is_directory(dir), dir.string(), " is no directory");
  Found found = list_files(dir);
  check_io(found.states.contains(0), dir.string(), " has no mp_rank_00_model_states.pt");
  auto main = std::make_shared<const TorchFile>(found.states.at(0));
  MegatronFiles all{.dir = dir, .main = main, .args = main->at("args")};
  all.version = number_at(main->root(), "checkpoint_version");
  all.iteration = static_cast<int64_t>(number_at(main->root(), "iteration"));
  if (found.layers.empty())
    add_modules(all, found);
  else
    add_layers(all, found);
  return all;
}

}  // namespace neox
