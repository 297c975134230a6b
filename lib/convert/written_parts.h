// What writers of files for each tensor parallel rank share: a rank's part of a parameter in a file
// of PyTorch, and the numbers in names of files.
#pragma once
#include <functional>
#include <string>

#include "convert/model_files.h"
#include "convert/tp_parts.h"
#include "torchfile/torch_writer.h"

namespace neox {

using ReadTensor = std::function<at::Tensor(const ModelTensor&)>;

// A rank's part, read when it is its turn to be written. `from` must outlive the item.
torchfile::Item part_item(const ModelTensor& from, const TpForm& form, int64_t rank, int64_t ranks,
                          const ReadTensor& read);

// Writes a file of PyTorch for each rank, side by side: `read` reads a tensor once for all of them,
// and one is in memory at a time. All trees have the same tensors in the same order.
using RankPath = std::function<fs::path(int64_t rank)>;
using RankTree = std::function<torchfile::Item(int64_t rank, const ReadTensor& read)>;
void write_ranks(int64_t ranks, const RankPath& path, const RankTree& tree);

// In this way DeepSpeed's file of a layer of a pipeline for each rank; none of a layer without
// tensors.
using LayerEntries = std::function<torchfile::Item::Entries(int64_t rank, const ReadTensor& read)>;
void write_layer(const fs::path& dir, int64_t layer, int64_t ranks, const LayerEntries& entries);

// By printf's rules, with one or two of %d.
std::string numbered(const char* format, int64_t a, int64_t b = 0);

}  // namespace neox
