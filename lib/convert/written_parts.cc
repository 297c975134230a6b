#include "convert/written_parts.h"

#include <map>
#include <memory>
#include <utility>

#include "base/text.h"
#include "convert/deepspeed_state.h"
#include "torchfile/tensor.h"

namespace neox {
namespace {

// Reads a tensor when it is first asked for and keeps it as long as it lives itself.
ReadTensor reading_once() {
  auto tensors = std::make_shared<std::map<const ModelTensor*, at::Tensor>>();
  return [tensors](const ModelTensor& t) {
    at::Tensor& tensor = (*tensors)[&t];
    if (!tensor.defined()) tensor = t.read();
    return tensor;
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

void write_layer(const fs::path& dir, int64_t layer, int64_t ranks, const LayerEntries& entries) {
  ReadTensor read = reading_once();
  for (int64_t rank = 0; rank < ranks; ++rank)
    if (torchfile::Item::Entries mine = entries(rank, read); !mine.empty())
      torchfile::write_torch_file(dir / numbered(kLayerName, layer, rank),
                                  torchfile::Item::ordered_dict(std::move(mine)));
}

std::string numbered(const char* format, int64_t a, int64_t b) {
  return printed(format, static_cast<int>(a), static_cast<int>(b));
}

}  // namespace neox
