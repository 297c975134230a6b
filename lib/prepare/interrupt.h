// Ctrl-C, SIGTERM, SIGUSR1 and SIGUSR2 while data are prepared: the process says so and ends with
// 75, since the same command goes on. Where work in progress has something to save, it looks for
// itself and comes to its end.
#pragma once

namespace neox {

// From now on these signals end the process at once, but where HeldSignals has them.
void end_when_interrupted();

// Nothing is left to do: they change nothing any more.
void pass_over_interrupts();

}  // namespace neox
