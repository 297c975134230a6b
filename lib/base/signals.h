// Signals that ask a process to stop: SIGUSR1 and SIGUSR2 (Slurm's warning before the time limit),
// SIGTERM, and Ctrl-C.
#pragma once
#include <string>

namespace neox {

// From now on they call this, in whatever thread; system calls that they interrupt go on. A reader
// of the log that goes away, as tee does at Ctrl-C, does not end the process before it has stopped.
void on_stop_signals(void (*handler)(int number));
// From now on each of them ends the process, but for what it ignores. A handler may call it.
void default_stop_signals();

// While one lives, a signal that a handler offers is left to check(); a second Ctrl-C ends the
// process at once. Any number of threads may have one.
class HeldSignals {
 public:
  HeldSignals() noexcept;
  HeldSignals(HeldSignals&&) noexcept : HeldSignals() {}
  HeldSignals& operator=(HeldSignals&&) = delete;
  ~HeldSignals();

  // By a handler. False where none lives.
  static bool take(int number);
  // Throws Error (75), "interrupted by SIGTERM" and the advice, once a signal was taken. Any
  // thread.
  static void check(const std::string& advice = "");
};

// "SIGUSR1" of its number.
const char* signal_name(int number);

}  // namespace neox
