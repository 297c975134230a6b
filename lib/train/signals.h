// Signals that ask a run to stop (base/signals.h).
#pragma once
#include <atomic>

namespace neox {

// The number of the signal that came, or 0. A second Ctrl-C ends the process at once.
using StopFlag = std::atomic<int>;
const StopFlag& install_stop_signals();

// From now on a first Ctrl-C is answered with this literal: a step may take minutes, and who sees
// nothing presses it again. For one process of a terminal; each of several would say it.
void answer_ctrl_c(const char* line);

// Throws (75) where one has come: "asked to stop by SIGTERM <when>".
void check_not_stopped(const StopFlag& stop, const char* when);

}  // namespace neox
