#include "convert/neox_optimizer.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "convert/neox_names.h"
#include "torchfile/tensor.h"

namespace neox {
namespace {

using torchfile::Kind;
using torchfile::TorchFile;
using torchfile::Value;

struct StateName {
  OptimizerKind kind;
  const char* ours;
  const char* theirs;
};
constexpr StateName kStates[] = {{OptimizerKind::kAdam, "adam_m", "exp_avg"},
                                 {OptimizerKind::kAdam, "adam_v", "exp_avg_sq"},
                                 {OptimizerKind::kLion, "lion_m", "exp_avg"}};

int64_t elements(const FlatShare& share, const std::string& key) {
  auto value = share.find(key);
  check_io(value && value->is(Kind::kTensor), share.file->name(),
           ": the optimizer's state has no tensor ", key);
  return value->tensor().numel();
}

int64_t elements(const FlatShares& group, const std::string& key) {
  int64_t sum = 0;
  for (const FlatShare& share : group) sum += elements(share, key);
  return sum;
}

const FlatShare& first_share(const FlatShares& group, const fs::path& dir) {
  check_io(!group.empty(), dir.string(), ": a group of the optimizer has no parameters");
  return group[0];
}

const FlatShare& first_share(const std::vector<FlatShares>& groups, const fs::path& dir) {
  check_io(!groups.empty(), dir.string(), ": the optimizer of mp_rank 0 has no groups");
  return first_share(groups[0], dir);
}

template <class Param>
int64_t elements_of(const std::vector<Param>& params) {
  int64_t sum = 0;
  for (const Param& p : params) sum += p.elements;
  return sum;
}

}  // namespace

NeoxOptimizer::NeoxOptimizer(std::shared_ptr<const NeoxFiles> files, const Config& config)
    : files_(std::move(files)), partitions_(files_->open_partitions()) {
  for (const StateName& s : kStates)
    if (s.kind == config.optimizer.kind) keys_[s.ours] = s.theirs;
  for (const auto& files_of_rank : partitions_) shares_.push_back(zero_shares(files_of_rank));
  if (partitions_.empty())
    for (const TorchFile& file : files_->states()) shares_.push_back(plain_shares(file));
  if (keys_.empty())
    absent_ =
        concat("that of optimizer.type ", config.value("optimizer.type"), " is not converted");
  else if (!first_share(shares_[0], files_->dir()).find(keys_.begin()->second))
    absent_ = "the optimizer had not stepped yet";
  if (absent_.empty()) open(config);
}

void NeoxOptimizer::open(const Config& config) {
  step_ = optimizer_step(first_file(), shares_[0]);
  if (first_share(shares_[0], files_->dir()).master) keys_["param"] = "master";
  for (const auto& [ours, theirs] : keys_) states_.push_back(ours);
  std::vector<Params> params = all_params(config);
  for (size_t mp = 0; mp < shares_.size(); ++mp) add_params(mp, params[mp]);
}

const TorchFile& NeoxOptimizer::first_file() const {
  return partitions_.empty() ? files_->states()[0] : partitions_[0][0];
}

// As DeepSpeed's param_shapes says: the order is that of the flat vectors.
NeoxOptimizer::Params NeoxOptimizer::listed_params(size_t mp_rank) const {
  if (mp_rank >= files_->states().size()) return {};
  auto listed = files_->states()[mp_rank].root().find("param_shapes");
  if (!listed || !listed->is(Kind::kList)) return {};
  Params params;
  for (const Value& group : listed->items()) {
    params.emplace_back();
    for (const auto& [name, shape] : group.entries()) {
      auto [layer, inner] = layer_and_name(std::string(name.as_string()));
      int64_t n = 1;
      for (const Value& size : shape.items()) n *= size.as_int();
      params.back().push_back({layer, inner, n});
    }
  }
  return params;
}

// In the order of the layer's file, which is that of its modules, in two groups or in one (without
// weight decay).
NeoxOptimizer::Params NeoxOptimizer::layer_params(int64_t layer, int64_t rank,
                                                  size_t groups) const {
  Params params(groups);
  for (const NeoxTensor* t : files_->layer(layer, rank)) {
    bool shared = t->name == kNeoxRelative && layer > 2;  // the first block's
    if (neox_is_buffer(t->name) || shared) continue;
    bool second = groups == 2 && !neox_decays(t->name);
    params[second ? 1 : 0].push_back({layer, t->name, t->ref->numel()});
  }
  return params;
}

std::vector<GroupSizes> NeoxOptimizer::sizes_of_stages(int64_t rank) const {
  std::vector<GroupSizes> stages;
  auto ranks = static_cast<size_t>(files_->tensor_parallel());
  for (size_t mp = static_cast<size_t>(rank); mp < shares_.size(); mp += ranks) {
    check_io(!shares_[mp].empty() && shares_[mp].size() <= 2, files_->dir().string(), ": mp_rank ",
             mp, " has an optimizer of ", shares_[mp].size(),
             " groups of parameters; GPT-NeoX has 1 or 2");
    stages.emplace_back();
    for (size_t g = 0; g < shares_[mp].size(); ++g) {
      bool master = first_share(shares_[mp][g], files_->dir()).master.has_value();
      stages.back()[g] = elements(shares_[mp][g], master ? "master" : keys_.begin()->second);
    }
  }
  return stages;
}

// Of one tensor-parallel rank in all pipeline stages.
std::vector<NeoxOptimizer::Params> NeoxOptimizer::derived_params(const Config& config,
                                                                 int64_t rank) const {
  std::vector<GroupSizes> stages = sizes_of_stages(rank), layers;
  size_t groups = shares_[static_cast<size_t>(rank)].size();
  std::vector<Params> of_layers, of_stages;
  for (int64_t l = 0; l < neox_layers(config.model); ++l) {
    of_layers.push_back(layer_params(l, rank, groups));
    layers.emplace_back();
    for (size_t g = 0; g < groups; ++g) layers.back()[g] = elements_of(of_layers.back()[g]);
  }
  bool tied = config.model.tied_embedding;
  std::vector<size_t> starts =
      stage_starts(layers, stages, tied ? layers[0] : GroupSizes{}, files_->dir().string());
  starts.push_back(layers.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    Params to(groups);
    auto append = [&](const Params& from) {
      for (size_t g = 0; g < groups; ++g) to[g].insert(to[g].end(), from[g].begin(), from[g].end());
    };
    // Tied modules come before all others.
    if (tied && s > 0 && s + 1 == stages.size()) append(of_layers[0]);
    for (size_t l = starts[s]; l < starts[s + 1]; ++l) append(of_layers[l]);
    of_stages.push_back(std::move(to));
  }
  return of_stages;
}

std::vector<NeoxOptimizer::Params> NeoxOptimizer::all_params(const Config& config) const {
  std::vector<Params> all;
  for (size_t mp = 0; mp < shares_.size(); ++mp) all.push_back(listed_params(mp));
  if (std::ranges::none_of(all, [](const Params& p) { return p.empty(); })) return all;
  auto ranks = static_cast<size_t>(files_->tensor_parallel());
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::vector<Params> stages = derived_params(config, static_cast<int64_t>(rank));
    for (size_t s = 0; s < stages.size(); ++s) all[s * ranks + rank] = std::move(stages[s]);
  }
  return all;
}

void NeoxOptimizer::add_params(size_t mp_rank, const Params& params) {
  const std::vector<FlatShares>& groups = shares_[mp_rank];
  std::string where =
      concat(files_->dir().string(), ": the optimizer's state of mp_rank ", mp_rank);
  check_io(groups.size() == params.size(), where, " has ", groups.size(),
           " groups, but the parameters are of ", params.size());
  int64_t rank = static_cast<int64_t>(mp_rank) % files_->tensor_parallel();
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<int64_t> paddings, sizes;
    for (const FlatShare& share : groups[g]) paddings.push_back(share.padding);
    for (const auto& [ours, theirs] : keys_) {
      std::vector<int64_t> stored;
      for (const FlatShare& share : groups[g]) stored.push_back(elements(share, theirs));
      sizes = without_padding(stored, paddings, elements_of(params[g]),
                              concat(where, ": ", theirs, " of group ", g));
    }
    check_slices(mp_rank, g, params[g], sizes);
    int64_t first = 0;
    for (const Param& p : params[g]) {
      places_.try_emplace({rank, p.layer, p.name}, Place{&groups[g], sizes, first, p.elements});
      first += p.elements;
    }
  }
}

// What DeepSpeed's param_slice_mappings says of each data-parallel rank's share must agree.
void NeoxOptimizer::check_slices(size_t mp_rank, size_t group, const std::vector<Param>& params,
                                 const std::vector<int64_t>& sizes) const {
  if (partitions_.empty()) return;
  const auto& files = partitions_[mp_rank];
  int64_t begin = 0;
  for (size_t rank = 0; rank < files.size() && sizes.size() == files.size();
       begin += sizes[rank++]) {
    auto mapping =
        files[rank].root().find(concat("optimizer_state_dict.param_slice_mappings.", group));
    if (!mapping || !mapping->is(Kind::kDict)) continue;
    std::map<std::pair<int64_t, std::string>, std::pair<int64_t, int64_t>> said, wanted;
    for (const auto& [name, slice] : mapping->entries())
      said[layer_and_name(std::string(name.as_string()))] = {slice.at("start").as_int(),
                                                             slice.at("numel").as_int()};
    int64_t first = 0;
    for (const Param& p : params) {
      int64_t from = std::max(first, begin), to = std::min(first + p.elements, begin + sizes[rank]);
      if (from < to) wanted[{p.layer, p.name}] = {from - begin, to - from};
      first += p.elements;
    }
    check_io(
        said == wanted, files[rank].name(), ": param_slice_mappings of group ", group,
        " names other slices of parameters than the sizes of the group give; "
        "the files are not of one run, or its zero_optimization.round_robin_gradients was true, "
        "whose order is not read (with --dtype, or without zero_pp_rank files, the weights alone "
        "are taken)");
  }
}

const NeoxOptimizer::Place& NeoxOptimizer::place_of(const NeoxTensor& parameter) const {
  auto found = places_.find({parameter.rank, parameter.layer, parameter.name});
  check_io(found != places_.end(), files_->dir().string(), ": the optimizer has no state of ",
           files_->full_name(parameter));
  const Place& place = found->second;
  check_io(place.elements == parameter.ref->numel(), files_->dir().string(),
           ": the optimizer's state of ", files_->full_name(parameter), " has ", place.elements,
           " elements, the parameter ", parameter.ref->numel());
  return place;
}

at::Tensor NeoxOptimizer::read(const std::string& state, const NeoxTensor& parameter) const {
  const Place& place = place_of(parameter);
  at::Tensor flat = at::empty({place.elements}, at::kFloat);
  int64_t at = 0;
  for (const PieceRun& run : runs_of(place.sizes, place.first, place.elements)) {
    const FlatShare& share = (*place.group)[run.piece];
    at::Tensor piece = torchfile::to_tensor(share.find(keys_.at(state))->tensor()).reshape({-1});
    flat.narrow(0, at, run.count).copy_(piece.narrow(0, run.first, run.count));
    share.file->release_memory();
    at += run.count;
  }
  return flat;
}

}  // namespace neox
