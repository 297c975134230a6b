// The memory of other processes of this node, which the kernel lets a process of the same user read
// (process_vm_readv), unless a container or the setting kernel.yama.ptrace_scope forbids it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace neox::mpi {

// Tells another process where to find this one, and whether it found it: process ids of other nodes
// and containers may mean other processes here.
struct Ticket {
  int pid = 0;
  uintptr_t address = 0;
  std::array<uint64_t, 2> content = {};  // of that address; random

  static Ticket mine();
  bool is_readable() const;
};

// Throws where the process has ended or its memory is gone.
void read_peer(int pid, int rank, const std::byte* from, std::byte* to, int64_t bytes);

}  // namespace neox::mpi
