// Tensor parallelism in two functions. copy_to_tp stands where a replicated tensor enters layers
// that are split over tp, sum_over_tp where their partial results leave (Megatron-LM's f and g).
#pragma once
#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace neox {

// Identity; backward sums the gradients over tp.
Tensor copy_to_tp(const Tensor& x, Communicator& tp);

// Sum over tp; backward is the identity.
Tensor sum_over_tp(const Tensor& x, Communicator& tp);

}  // namespace neox
