#include "train/batches.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace neox {

Batches::Batches(const Sampler& sampler, Split split, const BatchPlan& plan, int64_t seq,
                 Mesh& mesh, at::Device device)
    : sampler_(sampler),
      split_(split),
      plan_(plan),
      seq_(seq),
      rank_(mesh.data().rank()),
      ranks_(mesh.data().size()),
      device_(device) {}

Batch Batches::get(int64_t first, int64_t m) const {
  int64_t B = plan_.micro, T = seq_, index = (m * ranks_ + rank_) * B;
  Tensor tokens = at::zeros({B, T + 1}, at::kLong), weights = at::zeros({B, T}, at::kFloat);
  auto width = static_cast<size_t>(T);
  for (int64_t b = 0; b < B && index + b < plan_.global; ++b) {
    sampler_.get(split_, first + index + b,
                 {tokens.mutable_data_ptr<int64_t>() + b * (T + 1), width + 1},
                 {weights.mutable_data_ptr<float>() + b * T, width});
    sampler_.prefetch(split_, first + plan_.global + index + b);  // of the next step
  }
  tokens = tokens.to(device_);
  return {tokens.narrow(1, 0, T), tokens.narrow(1, 1, T), weights.to(device_), first + index};
}

}  // namespace neox
