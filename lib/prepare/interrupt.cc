#include "prepare/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

#include "base/error.h"
#include "base/signals.h"

namespace neox {
namespace {

// A signal handler can reach nothing else.
std::atomic<int> g_polls = 0;
std::atomic<int> g_signal = 0;  // the first one that was left to check()
std::atomic<bool> g_done = false;

void on_signal(int number) {
  if (g_done) return;
  if (g_polls > 0) {
    g_signal = number;
    if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
    return;
  }
  constexpr std::string_view kSaid =
      "\nneox-prepare-data: interrupted; the same command goes on with the files that are whole, "
      "and does the rest again\n";
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, kSaid.data(), kSaid.size());
  ::_exit(static_cast<int>(Exit::kRequeue));
}

}  // namespace

void end_when_interrupted() { on_stop_signals(on_signal); }

void pass_over_interrupts() { g_done = true; }

PolledInterrupts::PolledInterrupts() { ++g_polls; }

PolledInterrupts::~PolledInterrupts() { --g_polls; }

void PolledInterrupts::check() {
  int number = g_signal;
  if (number == 0) return;
  fail(Exit::kRequeue, "interrupted by ", signal_name(number));
}

}  // namespace neox
