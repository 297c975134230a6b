// Megatron-LM's torch_dist: the tensors of the whole model, in torch.distributed.checkpoint's
// files.
#include <ATen/ops/cat.h>

#include <algorithm>

#include "base/error.h"
#include "convert/json.h"
#include "convert/megatron.h"
#include "convert/megatron_distcp.h"
#include "convert/megatron_tree.h"

namespace neox {
namespace {

using torchfile::TorchFile;
using torchfile::Value;

constexpr const char* kCommonFile = "common.pt";
constexpr const char* kCommonObject = "common_state/shard_0_1";
constexpr int64_t kMostLayers = 1 << 16;
constexpr std::string_view kDecoderLayers = "decoder.layers.";

using Directory = std::shared_ptr<const DistDirectory>;

TensorPart part_of(Directory dir, const std::string& name, Box box, Dims shape) {
  TensorPart part{.where = concat(dir->dir().string(), ": ", name),
                  .dtype = dir->tensors().at(name).dtype,
                  .shape = shape};
  part.read = [dir, name, box = std::move(box), shape = std::move(shape)] {
    return dir->read(name, box).view(shape);
  };
  return part;
}

// A tensor of all layers, one after the other, is one for each layer.
void add_tensor(TensorParts& parts, Directory dir, const std::string& name) {
  const Dims& shape = dir->tensors().at(name).shape;
  bool in_layers = name.starts_with(kDecoderLayers) && name.size() > kDecoderLayers.size();
  bool stacked =
      in_layers && (name[kDecoderLayers.size()] < '0' || name[kDecoderLayers.size()] > '9');
  if (!stacked || shape.empty()) {
    parts[name] = {part_of(dir, name, whole(shape), shape)};
    return;
  }
  check_io(shape[0] < kMostLayers, name, " has ", shape[0], " layers");
  Dims one(shape.begin() + 1, shape.end());
  for (int64_t layer = 0; layer < shape[0]; ++layer) {
    Box box = whole(shape);
    box.start[0] = layer;
    box.extent[0] = 1;
    parts[concat(kDecoderLayers, layer, ".", name.substr(kDecoderLayers.size()))] = {
        part_of(dir, name, std::move(box), one)};
  }
}

// Gate and up of a gated MLP may be tensors of their own.
void join_gates(TensorParts& parts) {
  for (auto gate = parts.begin(); gate != parts.end();) {
    std::string name = gate->first;
    auto next = std::next(gate);
    if (!name.ends_with("linear_fc1.weight_w") && !name.ends_with("linear_fc1.bias_w")) {
      gate = next;
      continue;
    }
    check_io(!gate->second[0].shape.empty(), gate->second[0].where,
             " is a single number, not rows");
    std::string stem = name.substr(0, name.size() - 2);
    auto up = parts.find(stem + "_v");
    check_io(up != parts.end() && up->second[0].shape == gate->second[0].shape &&
                 up->second[0].dtype == gate->second[0].dtype,
             gate->second[0].where, " has no ", stem, "_v of its shape beside it");
    TensorPart both = gate->second[0];
    both.shape[0] *= 2;
    both.read = [w = gate->second[0].read, v = up->second[0].read] { return at::cat({w(), v()}); };
    parts.erase(up);
    parts.erase(gate);
    parts[stem] = {std::move(both)};
    gate = parts.upper_bound(name);
  }
}

void check_backend(const fs::path& dir) {
  nlohmann::json json = read_json(dir / "metadata.json");
  std::string backend = json.is_object() ? json.value("sharded_backend", "") : "";
  check_io(backend == "torch_dist", (dir / "metadata.json").string(), ": sharded_backend is '",
           backend, "'; supported is torch_dist");
}

// What is no tensor: a file of its own, or, since 2026, an object among the tensors.
std::shared_ptr<const TorchFile> open_common(const DistDirectory& dir) {
  fs::path path = dir.dir() / kCommonFile;
  if (fs::exists(path)) return std::make_shared<TorchFile>(path);
  std::shared_ptr<const TorchFile> object = dir.object(kCommonObject);
  check_io(object != nullptr, dir.dir().string(), " has neither ", kCommonFile, " nor ",
           kCommonObject, ", which say what the model is");
  return object;
}

}  // namespace

bool is_megatron_dist(const fs::path& path) {
  std::optional<fs::path> dir = megatron_step(path, "iter_%07d");
  return dir && fs::exists(*dir / ".metadata") && fs::exists(*dir / "metadata.json");
}

MegatronFiles open_megatron_dist_files(const fs::path& path) {
  std::optional<fs::path> step = megatron_step(path, "iter_%07d");
  check_io(step && fs::is_directory(*step), step ? step->string() : path.string(),
           " is no directory");
  check_backend(*step);
  auto dir = std::make_shared<const DistDirectory>(*step);
  MegatronFiles all{.dir = *step, .main = open_common(*dir), .args = {}};
  Value common = all.main->root();
  if (!common.items().empty()) common = common.items()[0];
  std::optional<Value> args = common.find("args");
  check_io(args.has_value(), all.main->name(), " has no args, which say what the model is");
  all.args = *args;
  all.version = number_at(common, "checkpoint_version");
  all.iteration = static_cast<int64_t>(number_at(common, "iteration"));
  for (const auto& [name, tensor] : dir->tensors()) add_tensor(all.parts, dir, name);
  join_gates(all.parts);
  return all;
}

}  // namespace neox
