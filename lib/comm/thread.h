// Ranks as threads of this process. The strictest back end: a send waits for its receive, and what
// the ranks call is compared (operation, type, size). For tests, and for several ranks on the CPU
// of one machine.
#pragma once
#include <chrono>
#include <functional>

#include "comm/communicator.h"
#include "launch/control.h"

namespace neox {

using RankBody = std::function<void(Communicator& world, Control& control)>;

// Runs body on `ranks` threads and waits for all. If one throws, the others are woken and throw
// too, and the first error is thrown here, with "rank R: " before it where there are several ranks.
void run_thread_ranks(int ranks, const RankBody& body,
                      std::chrono::seconds deadline = std::chrono::seconds(600));

}  // namespace neox
