// Signals that ask a process to stop: SIGUSR1 and SIGUSR2 (Slurm's warning before the time limit),
// SIGTERM, and Ctrl-C.
#pragma once

namespace neox {

// From now on they call this, in whatever thread; system calls that they interrupt go on.
void on_stop_signals(void (*handler)(int number));

// "SIGUSR1" of its number.
const char* signal_name(int number);

}  // namespace neox
