#include "train/signals.h"

#include <csignal>

#include "base/error.h"
#include "base/signals.h"

namespace neox {
namespace {

StopFlag g_stop{0};  // a signal handler can reach nothing else

void on_signal(int number) {
  g_stop.store(number);
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

const StopFlag& install_stop_signals() {
  on_stop_signals(on_signal);
  return g_stop;
}

void check_not_stopped(const StopFlag& stop, const char* when) {
  if (int signal = stop.load())
    fail(Exit::kRequeue, "asked to stop by ", signal_name(signal), " ", when);
}

}  // namespace neox
