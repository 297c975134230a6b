// Tensor parallelism. Layers that are split over tp are entered through norms, of which every rank
// has all, and left by a sum of what the ranks made of them.
//
// Megatron-LM's f stands behind the norms and sums the gradients of each. Here it stands before
// them: their backward is linear, so each rank takes its part of the gradient through them, and two
// norms of one input (GPT-NeoX's parallel residual) cost one sum. The gradients of what lies
// between are parts too: those of every parameter that tp does not split are to be summed over tp
// at the end of a step.
#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/side_stream.h"
#include "ops/norm.h"

namespace neox {

class GatheredNorms;

struct EntryNorms {
  NormWeight first, second = {};  // second.weight undefined: one norm
  NormOptions options = {};
};

// What split layers read, and the sum that goes past them.
struct Entered {
  at::Tensor sum, first, second = {};  // [B, T, hidden]
  std::shared_ptr<GatheredNorms> gathered = nullptr;
};

class TensorParallel {
 public:
  // Both outlive what is made here. side: beside which gradients are summed.
  TensorParallel(Communicator& tp, std::shared_ptr<SideStream> side);
  virtual ~TensorParallel() = default;

  // Norms of a sum's total for split layers. Backward sums its gradient over tp, and beside that
  // computes the gradients of `weights`, each of which is undefined or replaced by one for one
  // product() of the norms. The total goes on through counted_once().
  virtual Entered enter(const ResidualSum& input, std::initializer_list<at::Tensor*> weights,
                        const EntryNorms& norms);
  // The sum over tp of what split layers made of what was entered, or of the embedding's parts; in
  // place. Backward is the identity.
  virtual at::Tensor leave(const at::Tensor& partial, const Entered& entered = {});
  // Identity; backward keeps the gradient, which is the same on all ranks, on one of them. x may
  // be undefined.
  virtual at::Tensor counted_once(const at::Tensor& x);

 protected:
  // The same terms. In backward join_sum() is called when all gradients of what is made of them are
  // there, those of the weights among them.
  ResidualSum joined(const ResidualSum& input, std::initializer_list<at::Tensor*> weights);
  // Called in the backward pass.
  void start_sum(const SideStream::Work& sum) { sum_ = side_->run(sum); }
  void join_sum();

  Communicator& tp_;
  std::shared_ptr<SideStream> side_;

 private:
  SideStream::Work sum_;  // the join of the sum that runs beside; empty: none does
};

}  // namespace neox
