// Sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198): between the layers that are
// split over tp each rank has a part of the tokens. What Megatron-LM's is to its tensor parallelism
// this is to TensorParallel: the input is gathered before the norms and not behind them, once for
// two norms of it.
#pragma once
#include "model/tp.h"

namespace neox {

// A hidden state is [B, T / tp, hidden] here: the tokens of a micro-batch, one sample behind the
// other, are shared out in tp consecutive parts, which need not be parts of samples. tp divides T.
class SequenceParallel final : public TensorParallel {
 public:
  // keeps_norms: for the backward pass, as where it comes at once, or where more than the products
  // that enter() is given reads them there. Otherwise what is gathered and
  // normed is let go when the layers are left, and made again in their backward pass.
  SequenceParallel(Communicator& tp, std::shared_ptr<SideStream> side, bool keeps_norms)
      : TensorParallel(tp, std::move(side)), keeps_norms_(keeps_norms) {}

  // The total is this rank's tokens', the norms are of all tokens. Backward sums over tp as
  // TensorParallel does, each rank its tokens.
  Entered enter(const ResidualSum& input, std::initializer_list<at::Tensor*> weights,
                const EntryNorms& norms) override;
  // Each rank gets its tokens' sum. Called when all of what reads the norms has been called.
  at::Tensor leave(const at::Tensor& partial, const Entered& entered = {}) override;
  // The gradients of ranks are parts here: of other tokens.
  at::Tensor counted_once(const at::Tensor& x) override { return x; }

  at::Tensor gathered(const at::Tensor& part) const;      // [B, T / tp, C]: [B, T, C]
  at::Tensor scattered(const at::Tensor& partial) const;  // [B, T, C] of each: their sum's part
  // Called in the backward pass.
  at::Tensor start_scatter(const at::Tensor& gradient);

 private:
  bool keeps_norms_;
};

}  // namespace neox
