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

class TensorParallel {
 public:
  // Both outlive what is made here. side: beside which gradients are summed.
  TensorParallel(Communicator& tp, std::shared_ptr<SideStream> side);

  // The input of norms that lead to split layers. Identity; backward sums over tp, and beside that
  // computes the gradients of `weights`, each of which is replaced by one for one product() behind
  // the norms. The norms' sum goes on through counted_once().
  ResidualSum enter(const ResidualSum& input, std::initializer_list<at::Tensor*> weights = {});
  // Identity; backward keeps the gradient, which is the same on all ranks, on one of them. x may
  // be undefined.
  at::Tensor counted_once(const at::Tensor& x);
  // The sum over tp, in place; backward is the identity.
  at::Tensor leave(const at::Tensor& partial);

 private:
  // Called in the backward pass, with the gradients of the input's terms.
  void start_sum(const std::vector<at::Tensor>& gradients);
  void join_sum();

  Communicator& tp_;
  std::shared_ptr<SideStream> side_;
  SideStream::Work sum_;  // the join of the sum that runs beside; empty: none does
};

}  // namespace neox
