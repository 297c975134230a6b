#include "convert/written_parts.h"

#include <memory>
#include <vector>

#include "base/text.h"
#include "convert/deepspeed_state.h"
#include "torchfile/tensor.h"

namespace neox {
namespace {

// Keeps the tensor that was asked for last.
ReadTensor keeping_last() {
  struct Last {
    const ModelTensor* from = nullptr;
    at::Tensor tensor;
  };
  return [last = std::make_shared<Last>()](const ModelTensor& t) {
    if (last->from == &t) return last->tensor;
    *last = {};  // before the next one takes memory
    last->tensor = t.read();
    last->from = &t;
    return last->tensor;
  };
}

}  // namespace

torchfile::Item part_item(const ModelTensor& from, const TpForm& form, int64_t rank, int64_t ranks,
                          const ReadTensor& read) {
  torchfile::NewTensor tensor;
  tensor.dtype = torchfile::dtype_of(from.info.dtype);
  tensor.sizes = part_shape(form, from.info.shape, ranks);
  tensor.data = [&from, form, rank, ranks, read](const torchfile::NewTensor::Write& write) {
    at::Tensor part = part_of(form, read(from), rank, ranks);
    write({static_cast<const std::byte*>(part.const_data_ptr()), part.nbytes()});
  };
  return tensor;
}

void write_ranks(int64_t ranks, const RankPath& path, const RankTree& tree) {
  ReadTensor read = keeping_last();
  std::vector<torchfile::NewFile> files;
  for (int64_t rank = 0; rank < ranks; ++rank) files.push_back({path(rank), tree(rank, read)});
  torchfile::write_torch_files(files);
}

void write_layer(const fs::path& dir, int64_t layer, int64_t ranks, const LayerEntries& entries) {
  if (entries(0, {}).empty()) return;
  write_ranks(
      ranks, [&](int64_t rank) { return dir / numbered(kLayerName, layer, rank); },
      [&](int64_t rank, const ReadTensor& read) {
        return torchfile::Item::ordered_dict(entries(rank, read));
      });
}

std::string numbered(const char* format, int64_t a, int64_t b) {
  return printed(format, static_cast<int>(a), static_cast<int>(b));
}

}  // namespace neox
