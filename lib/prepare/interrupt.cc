#include "prepare/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <string_view>

#include "base/error.h"
#include "base/signals.h"

namespace neox {
namespace {

std::atomic<bool> g_done = false;  // a signal handler can reach nothing else

void on_signal(int number) {
  if (g_done || HeldSignals::take(number)) return;
  constexpr std::string_view kSaid =
      "\nneox-prepare-data: interrupted; the same command goes on with the files that are whole, "
      "and does the rest again\n";
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, kSaid.data(), kSaid.size());
  ::_exit(static_cast<int>(Exit::kRequeue));
}

}  // namespace

void end_when_interrupted() { on_stop_signals(on_signal); }

void pass_over_interrupts() { g_done = true; }

}  // namespace neox
