// The process itself: its memory and its age. The heap of programs that allocate and free the same
// large tensors at each step.
#pragma once
#include <cstdint>
#include <filesystem>

namespace neox {

// Freed memory stays with the process instead of going back to the kernel, which would give it back
// page by page, zeroed. Call first in main().
void keep_freed_memory();
// And what one thread frees, another may take. Call first in main().
void share_freed_memory();

// Greatest resident size of the process so far, in bytes.
int64_t peak_memory();

// Bytes that the process may still take, by the machine and by the control groups that it is in.
int64_t available_memory();
// The latter alone: the groups of a file such as /proc/self/cgroup, of version 1 or 2, below
// `root`. The largest number where nothing limits it.
int64_t memory_of_groups(const std::filesystem::path& groups, const std::filesystem::path& root);

// Seconds since the process was started, loading of libraries included.
double process_age();

}  // namespace neox
