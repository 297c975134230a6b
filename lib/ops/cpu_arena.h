// The memory of large CPU tensors: one range of addresses with huge pages, in which what a step
// frees the next one takes again, lowest addresses first, so that after the first step nothing is
// asked of the kernel.
#pragma once

namespace neox {

// From now on new CPU tensors of a quarter of a megabyte or more lie there, for the whole process;
// call before threads are started. Nothing changes, and a line of the log says so, where the system
// does not give the addresses (ulimit -v). The second call does nothing.
void use_cpu_arena();

}  // namespace neox
