// Signals that ask a run to stop (base/signals.h).
#pragma once
#include <atomic>

namespace neox {

// The number of the signal that came, or 0. A second Ctrl-C ends the process at once.
using StopFlag = std::atomic<int>;
const StopFlag& install_stop_signals();

// Throws (75) where one has come: "asked to stop by SIGTERM <when>".
void check_not_stopped(const StopFlag& stop, const char* when);

}  // namespace neox
