// Keys and values of earlier positions, for generation. Allocated once, for `capacity` positions of
// each row; rows are texts of their own, of any length.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace neox {

class FusedDecode;
struct DecodeReplay;

// Called behind each layer of a text that is read, with its tokens, so that something else of the
// model's may go on in between: FusedDecode::step() of a cache's other rows.
using AfterLayer = std::function<void(int64_t tokens)>;

struct KvCache {
  std::vector<at::Tensor> keys, values;  // one of this stage's layers each: [B, K, capacity, D]
  std::vector<int64_t> lengths;          // [B]: positions filled
  // Steps of one token by fused kernels; null: by the model's own layers, which are the reference.
  std::shared_ptr<FusedDecode> fused = nullptr;
  // Steps of one token that can be recorded, as on GPUs; or null.
  std::shared_ptr<DecodeReplay> replay = nullptr;

  int64_t rows() const { return static_cast<int64_t>(lengths.size()); }
  int64_t capacity() const { return keys.front().size(2); }
  // Some rows as a cache of their own, on the same memory; their lengths are not the original's.
  KvCache narrow(int64_t first, int64_t count) const;
  // So many behind those that are filled, without positions.
  KvCache rows_behind(size_t count) const;
  // The last row takes the place of row b, which is forgotten.
  void drop_row(int64_t b);
};

}  // namespace neox
