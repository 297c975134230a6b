// The tensors of the trees in Megatron's files, under the names that they have in the whole model.
#pragma once
#include <initializer_list>
#include <memory>
#include <string>

#include "convert/megatron_parts.h"
#include "torchfile/torch_file.h"
#include "torchfile/value.h"

namespace neox {

// Part of a model that one tensor-parallel rank has.
struct MegatronTree {
  std::shared_ptr<const torchfile::TorchFile> file;
  torchfile::Value tree;  // dicts of dicts of tensors
  int64_t rank = 0;
  int64_t first_layer = 0;  // of the whole model: what the tree calls 0
  std::string prefix = {};  // of all names
};

// Adds the tensors; ranks come in their order, stage by stage. Returns the number of layers. Throws
// (74) where another stage has the tensor.
int64_t add_tree(TensorParts& parts, const MegatronTree& tree);

// Throws (74) unless all of the ranks have each tensor.
void check_ranks(const TensorParts& parts, int64_t ranks, const std::string& where);

// An int or a float; 0 where there is none.
double number_at(torchfile::Value value, const char* name);
// Throws (74) where b's of one of these names is not a's, which is of the same save.
void check_same_numbers(const torchfile::TorchFile& a, const torchfile::TorchFile& b,
                        std::initializer_list<const char*> names);

}  // namespace neox
