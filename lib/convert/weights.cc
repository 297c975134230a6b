#include "convert/weights.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "convert/json.h"
#include "convert/safetensors.h"
#include "convert/torch_tensors.h"

namespace neox {
namespace {

using Json = nlohmann::json;
using Source = std::unique_ptr<TensorSource>;

struct WeightsKind {
  const char *extension, *single, *index;
  Source (*open)(const fs::path& file);
};

// The first that is there is read.
constexpr WeightsKind kKinds[] = {
    {".safetensors", "model.safetensors", "model.safetensors.index.json",
     [](const fs::path& file) -> Source { return std::make_unique<SafetensorsFile>(file); }},
    {".bin", "pytorch_model.bin", "pytorch_model.bin.index.json",
     [](const fs::path& file) -> Source { return std::make_unique<TorchTensors>(file); }},
};

class ShardedFiles : public TensorSource {
 public:
  ShardedFiles(const fs::path& index, const WeightsKind& kind)
      : index_(index.string()), kind_(kind) {
    Json json = read_json(index);
    check_io(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(),
             index_, " has no weight_map");
    for (const auto& [name, file] : json["weight_map"].items()) {
      check_io(file.is_string(), index_, ": the file of ", name, " is ", file.dump());
      add_file(index.parent_path(), file.get<std::string>());
      file_of_[name] = file.get<std::string>();
    }
    for (const auto& [file, content] : files_) add_tensors(file, *content);
    if (tensors_.size() != file_of_.size()) fail_missing();
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  at::Tensor read(const std::string& name) const override {
    auto file = file_of_.find(name);
    check_io(file != file_of_.end(), index_, " names no tensor ", name);
    return files_.at(file->second)->read(name);
  }

 private:
  void add_file(const fs::path& dir, const std::string& file) {
    if (files_.contains(file)) return;
    check_io(fs::path(file).filename() == file && file.ends_with(kind_.extension), index_,
             " names the file ", file, "; it must be a ", kind_.extension, " file beside it");
    check_io(fs::exists(dir / file), (dir / file).string(), " is missing; ", index_, " names it");
    files_[file] = kind_.open(dir / file);
  }
  void add_tensors(const std::string& file, const TensorSource& content) {
    for (const TensorInfo& info : content.tensors()) {
      auto named = file_of_.find(info.name);
      check_io(named != file_of_.end() && named->second == file, index_, " does not say that ",
               info.name, " is in ", file, ", where it is");
      tensors_.push_back(info);
    }
  }
  [[noreturn]] void fail_missing() const {
    std::map<std::string, std::string> left = file_of_;
    for (const TensorInfo& info : tensors_) left.erase(info.name);
    fail(Exit::kIo, index_, " says that ", left.begin()->first, " is in ", left.begin()->second,
         ", where it is not");
  }

  std::string index_;
  const WeightsKind& kind_;
  std::map<std::string, Source> files_;
  std::map<std::string, std::string> file_of_;
  std::vector<TensorInfo> tensors_;
};

const WeightsKind* kind_of_file(const fs::path& path) {
  for (const WeightsKind& kind : kKinds)
    if (path.extension() == kind.extension) return &kind;
  return nullptr;
}

}  // namespace

bool is_weights_file(const fs::path& path) {
  return kind_of_file(path) != nullptr && !fs::is_directory(path);
}

bool has_weights(const fs::path& dir) {
  return std::ranges::any_of(kKinds, [&](const WeightsKind& kind) {
    return fs::exists(dir / kind.single) || fs::exists(dir / kind.index);
  });
}

std::unique_ptr<TensorSource> open_weights(const fs::path& path) {
  if (!fs::is_directory(path)) {
    const WeightsKind* kind = kind_of_file(path);
    check_io(kind, path.string(), " is neither a .safetensors nor a .bin file");
    return kind->open(path);
  }
  const WeightsKind* found = nullptr;
  for (const WeightsKind& kind : kKinds) {
    bool single = fs::exists(path / kind.single), index = fs::exists(path / kind.index);
    if (!single && !index) continue;
    if (found) {
      log_info(path.string(), ": ", found->extension, " files are read, ", kind.extension,
               " files are not");
      continue;
    }
    check_io(!single || !index, path.string(), " has both ", kind.single, " and ", kind.index,
             ": which of them is the model is not clear; move one away");
    found = &kind;
  }
  check_io(found, path.string(),
           " has none of model.safetensors, model.safetensors.index.json, pytorch_model.bin and "
           "pytorch_model.bin.index.json");
  if (fs::exists(path / found->single)) return found->open(path / found->single);
  return std::make_unique<ShardedFiles>(path / found->index, *found);
}

}  // namespace neox
