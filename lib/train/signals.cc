#include "train/signals.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/signals.h"

namespace neox {
namespace {

// A signal handler can reach nothing else.
StopFlag g_stop{0};
std::atomic<const char*> g_answer = nullptr;

void on_signal(int number) {
  g_stop.store(number);
  if (number != SIGINT) return;
  std::signal(SIGINT, SIG_DFL);
  const char* answer = g_answer.load();
  if (answer == nullptr) return;
  [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, answer, std::strlen(answer));
}

}  // namespace

const StopFlag& install_stop_signals() {
  on_stop_signals(on_signal);
  return g_stop;
}

void answer_ctrl_c(const char* line) { g_answer.store(line); }

void check_not_stopped(const StopFlag& stop, const char* when) {
  if (int signal = stop.load())
    fail(Exit::kRequeue, "asked to stop by ", signal_name(signal), " ", when);
}

}  // namespace neox
