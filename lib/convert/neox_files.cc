#include "convert/neox_files.h"

#include <algorithm>
#include <regex>

#include "base/error.h"
#include "convert/deepspeed_state.h"
#include "convert/written_parts.h"
#include "torchfile/tensor.h"

namespace neox {
namespace {

using torchfile::Kind;
using torchfile::TorchFile;
using torchfile::Value;
using Pair = std::pair<int64_t, int64_t>;

struct Found {
  std::map<Pair, fs::path> layers;      // by layer, rank
  std::map<int64_t, fs::path> states;   // by mp_rank
  std::map<Pair, fs::path> partitions;  // by mp_rank, data-parallel rank
};

int64_t number(const std::ssub_match& digits) { return std::stoll(digits.str()); }

Found list_files(const fs::path& dir) {
  static const std::regex kLayer(R"(layer_(\d{1,9})-model_(\d{1,9})-model_states\.pt)");
  static const std::regex kState(R"(mp_rank_(\d{1,9})_model_states\.pt)");
  static const std::regex kPart(
      R"((bf16_)?zero_pp_rank_(\d{1,9})_mp_rank_(\d{1,9})_?optim_states\.pt)");
  static const std::regex kThree(R"(zero_pp_rank_\d+_mp_rank_\d+_model_states\.pt)");
  Found found;
  for (const auto& entry : fs::directory_iterator(dir)) {
    std::string name = entry.path().filename().string();
    std::smatch match;
    if (std::regex_match(name, match, kLayer))
      found.layers[{number(match[1]), number(match[2])}] = entry.path();
    else if (std::regex_match(name, match, kState))
      found.states[number(match[1])] = entry.path();
    else if (std::regex_match(name, match, kPart))
      found.partitions[{number(match[3]), number(match[2])}] = entry.path();
    else
      check_io(!std::regex_match(name, kThree), entry.path().string(),
               " is of ZeRO stage 3, whose parameters are in pieces; put them together with "
               "DeepSpeed's zero_to_fp32.py, or save from stage 1 or 2");
  }
  return found;
}

bool holds_checkpoint(const fs::path& dir) {
  return fs::exists(dir / "mp_rank_00_model_states.pt") ||
         fs::exists(dir / "layer_00-model_00-model_states.pt");
}

fs::path step_directory(const fs::path& path) {
  check_io(fs::is_directory(path), path.string(), " is not a directory");
  check_latest(path);
  return named_by_latest(path).value_or(path);
}

}  // namespace

bool looks_like_neox(const fs::path& path) {
  if (!fs::is_directory(path)) return false;
  if (holds_checkpoint(path)) return true;
  auto named = named_by_latest(path);
  return named && holds_checkpoint(*named);
}

std::pair<int64_t, std::string> layer_and_name(const std::string& full) {
  constexpr std::string_view kTied = "tied_modules.embed.", kSequential = "sequential.";
  if (full.starts_with(kTied)) return {0, full.substr(kTied.size())};
  std::string rest = full.starts_with(kSequential) ? full.substr(kSequential.size()) : full;
  size_t dot = rest.find_first_not_of("0123456789");
  if (dot == 0 || dot > 9 || dot == rest.npos || rest[dot] != '.') return {-1, full};
  return {std::stoll(rest.substr(0, dot)), rest.substr(dot + 1)};
}

NeoxFiles::NeoxFiles(const fs::path& path) : dir_(step_directory(path)) {
  Found found = list_files(dir_);
  check_io(!found.layers.empty() || !found.states.empty(), dir_.string(),
           " has neither layer_00-model_00-model_states.pt nor mp_rank_00_model_states.pt");
  sequential_ = found.layers.empty();
  open_states(found.states);
  if (sequential_)
    open_modules();
  else
    open_layers(found.layers);
  for (size_t i = 0; i < held_.size(); ++i) {
    by_place_[{held_[i].layer, held_[i].rank, held_[i].name}] = i;
    by_name_[infos_[i].name] = i;
  }
  check_states();
  partition_paths_ = std::move(found.partitions);
}

void NeoxFiles::add(int64_t layer, int64_t rank, Value module, const TorchFile& file,
                    const std::string& full) {
  check_io(module.is(Kind::kDict), file.name(), ": is not a dict of tensors");
  for (const auto& [key, value] : module.entries()) {
    check_io(key.is(Kind::kString), file.name(), ": a tensor's name is not a string");
    if (value.is(Kind::kNone)) continue;
    std::string name(key.text());
    check_io(value.is(Kind::kTensor), file.name(), ": ", name, " is ",
             torchfile::kind_name(value.kind()), ", not a tensor");
    infos_.push_back(
        {full + name, torchfile::scalar_type(value.tensor().dtype), value.tensor().sizes});
    auto [at, inner] = layer < 0 ? layer_and_name(name) : std::pair(layer, name);
    check_io(at >= 0, file.name(), ": ", name, " is not of a layer sequential.<N>");
    held_.push_back({at, rank, inner, &value.tensor(), &file});
  }
}

void NeoxFiles::open_layers(const std::map<Pair, fs::path>& paths) {
  for (const auto& [place, path] : paths) ranks_ = std::max(ranks_, place.second + 1);
  for (const auto& [place, path] : paths) {
    for (int64_t rank = 0; rank < ranks_; ++rank)
      check_io(paths.contains({place.first, rank}), file_of(place.first, rank),
               " is missing; there are layers of ", ranks_, " tensor-parallel ranks");
    layer_files_.push_back(std::make_unique<TorchFile>(path));
    const TorchFile& file = *layer_files_.back();
    add(place.first, place.second, file.root(), file,
        numbered("layer_%02d-model_%02d/", place.first, place.second));
  }
}

void NeoxFiles::open_modules() {
  ranks_ = static_cast<int64_t>(states_.size());
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    const TorchFile& file = states_[static_cast<size_t>(rank)];
    auto module = file.root().find("module");
    check_io(module && module->is(Kind::kDict), file.name(),
             " has no `module`, and no layer_<N>-model_<N>-model_states.pt is beside it");
    add(-1, rank, *module, file, numbered("mp_rank_%02d/", rank));
  }
}

void NeoxFiles::open_states(const std::map<int64_t, fs::path>& paths) {
  int64_t next = 0;
  for (const auto& [rank, path] : paths) {
    check_io(rank == next, (dir_ / numbered(kStateName, next)).string(), " is missing; ",
             path.filename().string(), " is there");
    states_.emplace_back(path);
    ++next;
  }
}

// The others must be of the same iteration and of a world of that size.
void NeoxFiles::check_states() const {
  auto n = static_cast<int64_t>(states_.size());
  check_io(n % ranks_ == 0, dir_.string(), " has ", n, " mp_rank files and layers of ", ranks_,
           " tensor-parallel ranks; some are missing, or of another run");
  for (int64_t i = 0; i < n; ++i) check_world(i);
}

void NeoxFiles::check_world(int64_t mp_rank) const {
  const TorchFile& file = states_[static_cast<size_t>(mp_rank)];
  auto same = [&](const char* key, int64_t wanted, const char* what) {
    auto found = file.root().find(key);
    if (!found || !found->is(Kind::kInt)) return;
    check_io(found->as_int() == wanted, file.name(), ": ", key, " is ", found->as_int(), ", but ",
             wanted, " ", what);
  };
  same("mp_world_size", static_cast<int64_t>(states_.size()), "mp_rank files are there");
  same("args.model_parallel_size", ranks_, "tensor-parallel ranks have files");
  for (const char* key : {"iteration", "global_steps", "dp_world_size"}) {
    auto first = states_[0].root().find(key);
    if (first && first->is(Kind::kInt)) same(key, first->as_int(), "in mp_rank_00_model_states.pt");
  }
}

bool NeoxFiles::has_optimizer() const {
  auto holds = [](const TorchFile& file) {
    auto optimizer = file.root().find("optimizer");
    return optimizer && !optimizer->is(Kind::kNone);
  };
  return has_partitions() || std::ranges::any_of(states_, holds);
}

std::vector<std::vector<TorchFile>> NeoxFiles::open_partitions() const {
  const auto& paths = partition_paths_;
  std::vector<std::vector<TorchFile>> partitions;
  if (paths.empty()) return partitions;
  int64_t data = 0, stages = std::max<int64_t>(1, static_cast<int64_t>(states_.size()) / ranks_);
  for (const auto& [place, path] : paths) {
    data = std::max(data, place.second + 1);
    check_io(place.first < stages * ranks_, path.string(), ": there are ", stages * ranks_,
             " mp_rank files; this one is of another run");
  }
  if (!states_.empty())
    if (auto world = states_[0].root().find("dp_world_size"); world && world->is(Kind::kInt))
      check_io(world->as_int() == data, states_[0].name(), ": dp_world_size is ", world->as_int(),
               ", but zero_pp_rank files of ", data, " data-parallel ranks are there");
  for (int64_t mp = 0; mp < stages * ranks_; ++mp) {
    partitions.emplace_back();
    for (int64_t rank = 0; rank < data; ++rank) {
      auto path = paths.find({mp, rank});
      check_io(path != paths.end(),
               (dir_ / numbered("zero_pp_rank_%d_mp_rank_%02d_optim_states.pt", rank, mp)).string(),
               " is missing; ", paths.begin()->second.filename().string(), " is there");
      partitions.back().emplace_back(path->second);
    }
  }
  return partitions;
}

at::Tensor NeoxFiles::read(const std::string& name) const {
  auto found = by_name_.find(name);
  check_io(found != by_name_.end(), dir_.string(), " holds no tensor ", name);
  const NeoxTensor& held = held_[found->second];
  at::Tensor tensor = torchfile::to_tensor(*held.ref).clone(at::MemoryFormat::Contiguous);
  held.file->release_memory();
  return tensor;
}

std::vector<const NeoxTensor*> NeoxFiles::layer(int64_t layer, int64_t rank) const {
  std::vector<const NeoxTensor*> all;
  for (const NeoxTensor& held : held_)
    if (held.layer == layer && held.rank == rank) all.push_back(&held);
  return all;
}

const NeoxTensor* NeoxFiles::find(int64_t layer, int64_t rank, const std::string& name) const {
  auto found = by_place_.find({layer, rank, name});
  return found == by_place_.end() ? nullptr : &held_[found->second];
}

const std::string& NeoxFiles::full_name(const NeoxTensor& tensor) const {
  return infos_[static_cast<size_t>(&tensor - held_.data())].name;
}

std::string NeoxFiles::file_of(int64_t layer, int64_t rank) const {
  return (dir_ / (sequential_ ? numbered(kStateName, rank) : numbered(kLayerName, layer, rank)))
      .string();
}

}  // namespace neox
