#include "base/signals.h"

#include <atomic>
#include <csignal>

#include "base/error.h"

namespace neox {
namespace {

// A signal handler can reach nothing else.
std::atomic<int> g_held = 0;
std::atomic<int> g_taken = 0;  // the last one; 0: none

constexpr int kStopSignals[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};

}  // namespace

void on_stop_signals(void (*handler)(int number)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (int number : kStopSignals) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    bool nohup = number == SIGHUP && before.sa_handler == SIG_IGN;
    if (!nohup) ::sigaction(number, &action, nullptr);
  }
  ::signal(SIGPIPE, SIG_IGN);
}

void default_stop_signals() {
  for (int number : kStopSignals) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::signal(number, SIG_DFL);
  }
}

HeldSignals::HeldSignals() noexcept { ++g_held; }

HeldSignals::~HeldSignals() {
  if (--g_held == 0) g_taken = 0;
}

bool HeldSignals::take(int number) {
  if (g_held == 0) return false;
  g_taken = number;
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
  return true;
}

void HeldSignals::check(const std::string& advice) {
  if (int number = g_taken) fail(Exit::kRequeue, "interrupted by ", signal_name(number), advice);
}

const char* signal_name(int number) {
  switch (number) {
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "Ctrl-C";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "a signal";
  }
}

}  // namespace neox
