// Signals that ask a run to stop (base/signals.h).
#pragma once
#include <atomic>

namespace neox {

// The number of the signal that came, or 0. A second Ctrl-C ends the process at once.
using StopFlag = std::atomic<int>;
const StopFlag& install_stop_signals();

}  // namespace neox
