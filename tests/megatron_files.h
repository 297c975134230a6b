// Megatron's checkpoints for tests: a small model, files of it with parts of their own, and
// torch.distributed.checkpoint's directories made by hand.
#pragma once
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/architecture.h"
#include "convert/convert.h"
#include "convert/megatron.h"
#include "convert/megatron_names.h"
#include "data_files.h"
#include "model/parameters.h"
#include "torchfile/tensor.h"
#include "torchfile/torch_writer.h"

namespace neox::testing {

using torchfile::Item;

constexpr const char* kGpt2 =
    "num_layers: 4\nhidden_size: 20\nnum_attention_heads: 4\nseq_length: 8\nintermediate_size: 14\n"
    "pos_emb: learned\nbias_gelu_fusion: true\n";
constexpr const char* kLlama =
    "num_layers: 4\nhidden_size: 24\nnum_attention_heads: 4\nnum_kv_heads: 2\nseq_length: 8\n"
    "activation: swiglu\nintermediate_size: 30\npos_emb: rotary\nnorm: rmsnorm\n"
    "rms_norm_epsilon: 1e-6\nuse_bias_in_attn_linear: false\nuse_bias_in_mlp: false\n"
    "no_weight_tying: true\n";
constexpr int64_t kVocabRows = 28;

// Each element is another number.
inline ModelFiles model_of(const std::string& yaml) {
  std::string text = yaml + "train_iters: 1\ntrain_micro_batch_size_per_gpu: 1\n";
  ModelFiles model{
      .where = "made", .config = load_config({.texts = {{"made", text}}}), .files = {}};
  model.config.model.vocab = kVocabRows;
  model.iteration = 3;
  int64_t from = 0;
  for (const ParamSpec& spec : parameters(model.config.model)) {
    int64_t n = num_elements(spec.shape);
    model.tensors.push_back({{spec.name, at::kFloat, spec.shape}, {spec.name}, [=] {
                               return at::arange(from, from + n, at::kFloat).view(spec.shape);
                             }});
    from += n;
  }
  return model;
}

inline Target target_of(const fs::path& dir, int64_t tensor, int64_t pipeline) {
  fs::create_directories(dir);
  return {.dir = dir, .final_dir = dir, .tensor_parallel = tensor, .pipeline_parallel = pipeline};
}

// "" where both hold the same, else the first tensor that differs.
inline std::string difference(const ModelFiles& a, const ModelFiles& b) {
  if (a.tensors.size() != b.tensors.size()) return "the number of tensors";
  for (size_t i = 0; i < a.tensors.size(); ++i)
    if (a.tensors[i].info.name != b.tensors[i].info.name ||
        !a.tensors[i].read().equal(b.tensors[i].read()))
      return a.tensors[i].info.name;
  return architecture(a.config.model) == architecture(b.config.model) ? "" : "the architecture";
}

// Converts, and says what is left where that fails.
inline std::string converting(const Directory& dir, const char* from, const fs::path& source) {
  std::string error = error_of(
      [&] { convert({.from = from, .to = "neox.cpp", .source = source, .target = dir / "out"}); });
  for (const std::string& name : dir.list())
    if (name.starts_with("out")) error += " LEFT " + name;
  return error;
}

// A checkpoint of one rank, whose parts can be changed.
struct Rank {
  std::map<std::string, at::Tensor> tensors;  // by Megatron-LM's names
  std::map<std::string, Item> args, state;

  explicit Rank(const ModelFiles& model) {
    for (const ModelTensor& t : model.tensors) tensors[megatron_names(t.info.name)[0]] = t.read();
    bool fork = deepspeed_kind(model.config.model) == MegatronKind::kBigScience;
    MegatronKind kind = fork ? MegatronKind::kBigScience : MegatronKind::kMegatron;
    Item object = megatron_args(model.config, {.kind = kind}, 128, model.iteration);
    for (const auto& [key, value] : std::get<Item::Object>(object.content()).attributes)
      args[std::get<std::string>(key.content())] = value;
    state = {{"checkpoint_version", 3.0}, {"iteration", 3}};
  }
  static Item::Entries entries(const std::map<std::string, Item>& items) {
    return {items.begin(), items.end()};
  }
  fs::path write(const fs::path& save) const {
    Item::Entries model, all = entries(state);
    for (const auto& [name, tensor] : tensors)
      model.emplace_back(name, torchfile::new_tensor(tensor));
    all.emplace_back("model", Item::dict(model));
    all.emplace_back("args", Item::object("argparse", "Namespace", entries(args)));
    fs::create_directories(save / "iter_0000003" / "mp_rank_00");
    torchfile::write_torch_file(save / "iter_0000003/mp_rank_00/model_optim_rng.pt",
                                Item::dict(all));
    std::ofstream(save / "latest_checkpointed_iteration.txt") << "3\n";
    return save;
  }
};

// Pickles of protocol 2.
namespace pickle {
inline std::string number(int64_t n) {
  auto value = static_cast<int32_t>(n);
  return "J" + std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
inline std::string text(const std::string& text) {
  auto size = static_cast<uint32_t>(text.size());
  return "X" + std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}
inline std::string tuple(const Dims& dims) {
  std::string all = "(";
  for (int64_t n : dims) all += number(n);
  return all + "t";
}
using Pairs = std::vector<std::pair<std::string, std::string>>;
inline std::string dict(const Pairs& pairs) {
  std::string all = "}(";
  for (const auto& [key, value] : pairs) all += key + value;
  return all + "u";
}
inline std::string object(const std::string& name, const Pairs& attributes) {
  Pairs named;
  for (const auto& [key, value] : attributes) named.emplace_back(text(key), value);
  return "ctorch.distributed.checkpoint." + name + "\n)\x81" + dict(named) + "b";
}
}  // namespace pickle

// One part of a tensor, cut out of it.
struct DistChunk {
  std::string name;
  Box box;
  bool in_metadata = true, in_storage = true;
};

// A directory with those tensors and parts.
struct Dist {
  std::map<std::string, at::Tensor> tensors;
  std::vector<DistChunk> chunks;
  std::string backend = "torch_dist";
  int64_t cut = 0;  // bytes that the file of the parts lacks at its end

  void add(const std::string& name, const at::Tensor& tensor, const std::vector<Box>& boxes) {
    tensors[name] = tensor;
    for (const Box& box : boxes) chunks.push_back({name, box});
  }
  std::string part(const DistChunk& chunk) const {
    at::Tensor t = tensors.at(chunk.name);
    for (size_t d = 0; d < chunk.box.start.size(); ++d)
      t = t.narrow(static_cast<int64_t>(d), chunk.box.start[d], chunk.box.extent[d]);
    Directory scratch;
    torchfile::write_torch_file(scratch / "part.pt", torchfile::new_tensor(t.contiguous()));
    return read_file(scratch / "part.pt");
  }
  fs::path write(const fs::path& dir, const Item& common) const {
    using namespace pickle;
    std::string file;
    Pairs storage, metadata;
    for (const DistChunk& chunk : chunks) {
      std::string bytes = part(chunk);
      if (chunk.in_storage)
        storage.emplace_back(object("metadata\nMetadataIndex", {{"fqn", text(chunk.name)},
                                                                {"offset", tuple(chunk.box.start)},
                                                                {"index", number(0)}}),
                             object("filesystem\n_StorageInfo",
                                    {{"relative_path", text("__0_0.distcp")},
                                     {"offset", number(static_cast<int64_t>(file.size()))},
                                     {"length", number(static_cast<int64_t>(bytes.size()))}}));
      file += bytes;
    }
    for (const auto& [name, tensor] : tensors) {
      std::string list = "](";
      for (const DistChunk& chunk : chunks)
        if (chunk.name == name && chunk.in_metadata)
          list += object("metadata\nChunkStorageMetadata",
                         {{"offsets", tuple(chunk.box.start)}, {"sizes", tuple(chunk.box.extent)}});
      std::string properties =
          object("metadata\nTensorProperties", {{"dtype", "ctorch\nfloat32\n"}});
      metadata.emplace_back(text(name), object("metadata\nTensorStorageMetadata",
                                               {{"properties", properties},
                                                {"size", tuple(tensor.sizes().vec())},
                                                {"chunks", list + "e"}}));
    }
    fs::create_directories(dir);
    file.resize(file.size() - static_cast<size_t>(cut));
    std::ofstream(dir / "__0_0.distcp", std::ios::binary) << file;
    std::ofstream(dir / ".metadata", std::ios::binary)
        << "\x80\x02" +
               object("metadata\nMetadata",
                      {{"state_dict_metadata", dict(metadata)}, {"storage_data", dict(storage)}}) +
               ".";
    std::ofstream(dir / "metadata.json") << "{\"sharded_backend\": \"" << backend << "\"}";
    torchfile::write_torch_file(dir / "common.pt", common);
    return dir;
  }
};

}  // namespace neox::testing
