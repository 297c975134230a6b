// Signals that ask a run to stop: SIGUSR1 and SIGUSR2 (Slurm's warning before the time limit),
// SIGTERM, and Ctrl-C.
#pragma once
#include <atomic>

namespace neox {

// The number of the signal that came, or 0. A second Ctrl-C ends the process at once.
using StopFlag = std::atomic<int>;
const StopFlag& install_stop_signals();

// "SIGUSR1" of its number.
const char* signal_name(int number);

}  // namespace neox
