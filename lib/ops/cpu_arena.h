// The memory of large CPU tensors: one range of addresses with huge pages, in which what a step
// frees the next one takes again, lowest addresses first, so that after the first step nothing is
// asked of the kernel.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

// From now on new CPU tensors of a quarter of a megabyte or more lie there, for the whole process;
// call before threads are started. Nothing changes, and a line of the log says so, where the system
// does not give the addresses (ulimit -v). The second call does nothing.
void use_cpu_arena();

// n zeros. In parts of the arena that are used for the first time they are the kernel's own: a page
// comes into being when it is first read or written, not now.
at::Tensor untouched_zeros(int64_t n, const at::TensorOptions& options);

}  // namespace neox
