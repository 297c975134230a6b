#include "convert/neox_shares.h"

#include <ATen/core/Tensor.h>

#include "base/error.h"
#include "torchfile/tensor.h"

namespace neox {
namespace {

using torchfile::Kind;
using torchfile::TorchFile;
using torchfile::Value;

constexpr const char* kOptimizer = "optimizer_state_dict";

Value optimizer_of(const TorchFile& file) { return file.at(kOptimizer); }

// Its list of groups at `path`.
std::span<const Value> groups_at(const TorchFile& file, const std::string& path) {
  Value list = file.at(path);
  check_io(list.is(Kind::kList) || list.is(Kind::kTuple), file.name(), ": ", path, " is ",
           torchfile::kind_name(list.kind()), ", not a list of groups");
  return list.items();
}

// Of the dict of torch's optimizers, or of the list that elastic checkpoints have.
Value state_of_group(const TorchFile& file, Value base, size_t group) {
  if (base.is(Kind::kDict)) return base.find(concat("state.", group)).value_or(Value());
  auto found = base.find(std::to_string(group));
  check_io(found.has_value(), file.name(), ": base_optimizer_state has no group ", group);
  return *found;
}

FlatShares new_shares(const std::vector<TorchFile>& files, size_t group) {
  FlatShares shares;
  for (const TorchFile& file : files) {
    auto masters = groups_at(file, concat(kOptimizer, ".single_partition_of_fp32_groups"));
    check_io(group < masters.size(), file.name(), ": single_partition_of_fp32_groups has ",
             masters.size(), " groups, another number than the first file");
    auto padding = optimizer_of(file).find(concat("group_paddings.", group));
    shares.push_back(
        {masters[group],
         state_of_group(file, file.at(concat(kOptimizer, ".base_optimizer_state")), group),
         padding ? padding->as_int() : 0, &file});
  }
  return shares;
}

constexpr const char* kOldMasters = "local_sub_partitions_of_fp32_groups";

// The vector is cut into intervals of communication, and each of them into a part for each rank.
FlatShares old_shares(const std::vector<TorchFile>& files, size_t group) {
  FlatShares shares;
  std::string path = concat(kOptimizer, ".", kOldMasters, ".", group);
  size_t intervals = groups_at(files[0], path).size();
  for (size_t i = 0; i < intervals; ++i)
    for (const TorchFile& file : files) {
      auto masters = groups_at(file, path);
      check_io(masters.size() == intervals, file.name(), ": ", kOldMasters, " has ", masters.size(),
               " intervals of communication, but ", intervals, " in the first file");
      Value state = file.at(concat(kOptimizer, ".base_optimizer_state.", group, ".", i));
      shares.push_back({masters[i], state, 0, &file});
    }
  return shares;
}

// Of an optimizer that holds each parameter by itself.
FlatShares single_shares(const TorchFile& file, Value optimizer, const Value& group) {
  FlatShares shares;
  for (const Value& index : group.at("params").items())
    shares.push_back(
        {{}, optimizer.find(concat("state.", index.as_int())).value_or(Value()), 0, &file});
  return shares;
}

int64_t count_of(const Value& value) {
  if (!value.is(Kind::kTensor)) return value.as_int();
  check_io(value.tensor().numel() == 1, "step is a tensor of several elements");
  return static_cast<int64_t>(torchfile::to_tensor(value.tensor()).item<double>());
}

}  // namespace

std::optional<Value> FlatShare::find(const std::string& key) const {
  if (key == "master") return master;
  return state.find(key);
}

std::vector<FlatShares> zero_shares(const std::vector<TorchFile>& files) {
  bool old = optimizer_of(files.at(0)).find(kOldMasters).has_value();
  const char* masters = old ? kOldMasters : "single_partition_of_fp32_groups";
  size_t n = groups_at(files[0], concat(kOptimizer, ".", masters)).size();
  std::vector<FlatShares> groups;
  for (size_t g = 0; g < n; ++g)
    groups.push_back(old ? old_shares(files, g) : new_shares(files, g));
  return groups;
}

std::vector<FlatShares> plain_shares(const TorchFile& file) {
  auto optimizer = file.root().find("optimizer");
  if (!optimizer || optimizer->is(Kind::kNone)) return {};
  std::vector<FlatShares> groups;
  if (!optimizer->find("fp32_groups_flat")) {
    for (const Value& group : groups_at(file, "optimizer.param_groups"))
      groups.push_back(single_shares(file, *optimizer, group));
    return groups;
  }
  Value inner = file.at(concat("optimizer.", kOptimizer));
  for (const Value& master : groups_at(file, "optimizer.fp32_groups_flat"))
    groups.push_back({{master, state_of_group(file, inner, groups.size()), 0, &file}});
  return groups;
}

int64_t optimizer_step(const TorchFile& file, const std::vector<FlatShares>& groups) {
  for (const FlatShares& group : groups)
    for (const FlatShare& share : group)
      if (auto step = share.find("step")) return count_of(*step);
  for (const char* path :
       {"optimizer_state_dict.base_optimizer_state.param_groups.0.step",
        "optimizer_state_dict.base_optimizer_state_step",
        "optimizer.optimizer_state_dict.param_groups.0.step", "optimizer.param_groups.0.step"})
    if (auto step = file.root().find(path)) return count_of(*step);
  return 0;
}

std::optional<Value> loss_scaler(const TorchFile& file) {
  for (const char* path : {"optimizer_state_dict.loss_scaler", "optimizer"})
    if (auto scaler = file.root().find(path); scaler && scaler->find("cur_scale")) return scaler;
  return {};
}

}  // namespace neox
