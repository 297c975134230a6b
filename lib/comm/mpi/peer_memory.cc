#include "comm/mpi/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/error.h"

namespace neox::mpi {
namespace {

// Linux moves a bit less than 2 GiB in one call.
constexpr int64_t kMost = int64_t{1} << 30;

int64_t read_some(int pid, const void* from, void* to, int64_t bytes) {
  iovec local{to, static_cast<size_t>(bytes)};
  iovec remote{const_cast<void*>(from), static_cast<size_t>(bytes)};
  return ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

}  // namespace

Ticket Ticket::mine() {
  static const std::array<uint64_t, 2> random = [] {
    std::random_device device;
    auto word = [&] { return uint64_t{device()} << 32 | device(); };
    return std::array<uint64_t, 2>{word(), word()};
  }();
  return {::getpid(), reinterpret_cast<uintptr_t>(&random), random};
}

bool Ticket::is_readable() const {
  std::array<uint64_t, 2> found = {};
  int64_t n = read_some(pid, reinterpret_cast<const void*>(address), found.data(), sizeof found);
  return n == sizeof found && found == content;
}

void read_peer(int pid, int rank, const std::byte* from, std::byte* to, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    int64_t n = read_some(pid, from + done, to + done, std::min(kMost, bytes - done));
    if (n <= 0)
      fail(Exit::kPeerLost, "rank ", rank, " (process ", pid,
           ") left during an operation: ", n < 0 ? std::strerror(errno) : "nothing to read");
    done += n;
  }
}

}  // namespace neox::mpi
