#include "optim/compressed_mean.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace neox {

CompressedMean::CompressedMean(Communicator& group, int64_t size, const at::TensorOptions& options)
    : group_(group), size_(size) {
  int64_t whole = 8 * group.size();
  part_ = (size + whole - 1) / whole * 8;
  own_error_ = at::zeros({part_ * group.size()}, options);
  part_error_ = at::zeros({part_}, options);
  bits_ = at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kByte).to(options.device());
}

at::Tensor CompressedMean::signs(const at::Tensor& bytes) const {
  at::Tensor set = bytes.reshape({-1, 1}).bitwise_and(bits_) != 0;  // [bytes, 8]
  return set.flatten().to(own_error_.scalar_type()) * 2 - 1;
}

std::pair<at::Tensor, at::Tensor> CompressedMean::compress(const at::Tensor& x, int64_t counted,
                                                           at::Tensor& error) {
  at::Tensor scale = x.norm() / std::sqrt(static_cast<double>(std::max<int64_t>(counted, 1)));
  at::Tensor set = (x >= 0).view({-1, 8}).to(at::kByte);
  at::Tensor bytes = (set * bits_).sum(1).to(at::kByte);
  error.copy_(x - scale * signs(bytes));
  if (counted < error.numel()) error.narrow(0, counted, error.numel() - counted).zero_();
  return {bytes, scale.reshape({1})};
}

at::Tensor CompressedMean::scatter(const at::Tensor& bytes) {
  at::Tensor theirs = at::empty_like(bytes).view({group_.size(), -1});
  at::Tensor mine = bytes.view({group_.size(), -1});
  std::vector<Communicator::Transfer> transfers;
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank()) continue;
    transfers.push_back({Communicator::Transfer::kSend, peer, mine[peer]});
    transfers.push_back({Communicator::Transfer::kReceive, peer, theirs[peer]});
  }
  theirs[group_.rank()].copy_(mine[group_.rank()]);
  group_.exchange(transfers);
  return theirs;
}

at::Tensor CompressedMean::gather(const at::Tensor& mine) {
  at::Tensor all = at::empty({mine.numel() * group_.size()}, mine.options());
  group_.all_gather(mine, all);
  return all;
}

at::Tensor CompressedMean::operator()(const at::Tensor& mine) {
  at::Tensor x = own_error_.clone();
  x.narrow(0, 0, size_).add_(mine);
  auto [bytes, scale] = compress(x, size_, own_error_);
  at::Tensor scales = gather(scale).view({-1, 1});  // [ranks, 1]
  at::Tensor sent = signs(scatter(bytes)).view({group_.size(), part_});
  int64_t counted = std::clamp<int64_t>(size_ - part_ * group_.rank(), 0, part_);
  at::Tensor part = (sent * scales).mean(0) + part_error_;
  part.narrow(0, counted, part_ - counted).zero_();
  auto [part_bytes, part_scale] = compress(part, counted, part_error_);
  at::Tensor all = signs(gather(part_bytes)).view({group_.size(), part_});
  return (all * gather(part_scale).view({-1, 1})).flatten().narrow(0, 0, size_);
}

}  // namespace neox
