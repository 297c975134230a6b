#include "train/signals.h"

#include <csignal>
#include <initializer_list>

namespace neox {
namespace {

StopFlag g_stop{0};  // a signal handler can reach nothing else

void on_signal(int number) {
  g_stop.store(number);
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

const StopFlag& install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) ::sigaction(number, &action, nullptr);
  return g_stop;
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
    default:
      return "a signal";
  }
}

}  // namespace neox
