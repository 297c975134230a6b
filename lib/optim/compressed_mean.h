// The mean of vectors over the ranks of a group, sent as one bit an element: the signs and one
// scale (Tang et al. 2021, "1-bit Adam", arXiv 2102.02888, section 4). What compression loses is
// kept and added the next time, on the rank that sends and on the rank that sums.
#pragma once
#include <utility>

#include "comm/communicator.h"

namespace neox {

class CompressedMean {
 public:
  // For vectors of `size` elements. The errors start at 0.
  CompressedMean(Communicator& group, int64_t size, const at::TensorOptions& options);
  // Collective over the group. The same bits on all ranks. mine: flat.
  at::Tensor operator()(const at::Tensor& mine);

 private:
  // Signs [part_ / 8] bytes and the scale of `x`, whose first `counted` elements count; the error
  // that is left goes to `error`.
  std::pair<at::Tensor, at::Tensor> compress(const at::Tensor& x, int64_t counted,
                                             at::Tensor& error);
  at::Tensor signs(const at::Tensor& bytes) const;  // +1 and -1, eight for a byte
  at::Tensor scatter(const at::Tensor& bytes);      // [ranks, part_ / 8]: everyone's bytes of mine
  at::Tensor gather(const at::Tensor& mine);        // flat, of all ranks

  Communicator& group_;
  int64_t size_, part_;  // elements of the vector, and of a rank's part: a multiple of 8
  at::Tensor own_error_, part_error_;  // of what this rank sends, and of the part that it sums
  at::Tensor bits_;                    // 1, 2, 4 ... 128
};

}  // namespace neox
