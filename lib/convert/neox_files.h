// The files of a GPT-NeoX checkpoint, as DeepSpeed writes them; docs/convert.md lists them. All but
// the zero_pp_rank files are opened and indexed at once; tensors stay in the files until they are
// read.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "convert/tensor_source.h"
#include "torchfile/torch_file.h"

namespace neox {

// A tensor of a layer of the pipeline, as a tensor-parallel rank has it.
struct NeoxTensor {
  int64_t layer = 0, rank = 0;
  std::string name;  // in the layer: "attention.dense.weight"
  const torchfile::TensorRef* ref = nullptr;
  const torchfile::TorchFile* file = nullptr;
};

class NeoxFiles : public TensorSource {
 public:
  // `path`: the save directory of a run, of which the checkpoint that `latest` names is taken, or
  // a global_step directory. Throws (74) naming the file that is missing, damaged, or not of the
  // same checkpoint as the others.
  explicit NeoxFiles(const fs::path& path);

  const fs::path& dir() const { return dir_; }
  int64_t tensor_parallel() const { return ranks_; }

  // "layer_02-model_00/attention.dense.weight", or
  // "mp_rank_00/sequential.2.attention.dense.weight".
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  at::Tensor read(const std::string& name) const override;

  const std::vector<NeoxTensor>& all() const { return held_; }
  // The tensors of a layer in the order of the file, and one of them; null where there is none.
  std::vector<const NeoxTensor*> layer(int64_t layer, int64_t rank) const;
  const NeoxTensor* find(int64_t layer, int64_t rank, const std::string& name) const;
  const std::string& full_name(const NeoxTensor& tensor) const;
  // The path of the file that has, or should have, a layer of a rank.
  std::string file_of(int64_t layer, int64_t rank) const;

  // mp_rank files, by stage x tensor_parallel() + rank; none where only layers are there.
  const std::vector<torchfile::TorchFile>& states() const { return states_; }
  // Is an optimizer's state in files of states, or in zero_pp_rank files?
  bool has_optimizer() const;
  bool has_partitions() const { return !partition_paths_.empty(); }
  // zero_pp_rank files: [mp_rank][data-parallel rank]. Throws (74) naming the file that is missing,
  // damaged, or not of the same checkpoint as the others.
  std::vector<std::vector<torchfile::TorchFile>> open_partitions() const;

 private:
  void open_layers(const std::map<std::pair<int64_t, int64_t>, fs::path>& paths);
  void open_modules();
  void add(int64_t layer, int64_t rank, torchfile::Value module, const torchfile::TorchFile& file,
           const std::string& full);
  void open_states(const std::map<int64_t, fs::path>& paths);
  void check_states() const;
  void check_world(int64_t mp_rank) const;

  fs::path dir_;
  int64_t ranks_ = 0;
  bool sequential_ = false;
  std::vector<std::unique_ptr<torchfile::TorchFile>> layer_files_;
  std::vector<torchfile::TorchFile> states_;
  std::map<std::pair<int64_t, int64_t>, fs::path> partition_paths_;  // by mp_rank, data rank
  std::vector<NeoxTensor> held_;
  std::vector<TensorInfo> infos_;  // of the same positions
  std::map<std::tuple<int64_t, int64_t, std::string>, size_t> by_place_;
  std::map<std::string, size_t> by_name_;
};

// Does a directory look like one?
bool looks_like_neox(const fs::path& path);

// "sequential.5.norm.weight", "5.norm.weight" or "tied_modules.embed.word_embeddings.weight": the
// layer and the name in it; layer -1 for any other.
std::pair<int64_t, std::string> layer_and_name(const std::string& full);

}  // namespace neox
