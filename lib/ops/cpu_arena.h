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

// Sets a contiguous tensor to 0. In the arena its pages go back to the kernel, which gives them
// anew, cleared, when they are written to: a gradient takes no memory before it is computed.
void clear(at::Tensor& tensor);

// Gives the pages between the tensors of the arena back to the kernel: called as backward leaves
// layer after layer, their activations make room for their gradients.
void give_back_freed_memory();

}  // namespace neox
