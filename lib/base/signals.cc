#include "base/signals.h"

#include <csignal>
#include <initializer_list>

namespace neox {

void on_stop_signals(void (*handler)(int number)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    bool nohup = number == SIGHUP && before.sa_handler == SIG_IGN;
    if (!nohup) ::sigaction(number, &action, nullptr);
  }
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
