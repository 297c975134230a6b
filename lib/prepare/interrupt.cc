#include "prepare/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <initializer_list>
#include <string_view>

#include "base/error.h"

namespace neox {
namespace {

// A signal handler can reach nothing else.
std::atomic<int> g_polls = 0;
std::atomic<int> g_signal = 0;  // the first one that was left to check()

void on_signal(int number) {
  if (g_polls > 0) {
    g_signal = number;
    if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
    return;
  }
  constexpr std::string_view kSaid =
      "\nneox-prepare-data: interrupted; the same command goes on with what is there\n";
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, kSaid.data(), kSaid.size());
  ::_exit(static_cast<int>(Exit::kRequeue));
}

}  // namespace

void end_when_interrupted() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) ::sigaction(number, &action, nullptr);
}

PolledInterrupts::PolledInterrupts() { ++g_polls; }

PolledInterrupts::~PolledInterrupts() { --g_polls; }

void PolledInterrupts::check() {
  int number = g_signal;
  if (number == 0) return;
  fail(Exit::kRequeue, "interrupted by ",
       number == SIGINT    ? "Ctrl-C"
       : number == SIGTERM ? "SIGTERM"
       : number == SIGUSR1 ? "SIGUSR1"
                           : "SIGUSR2");
}

}  // namespace neox
