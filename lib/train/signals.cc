#include "train/signals.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "base/error.h"
#include "base/signals.h"

namespace neox {
namespace {

StopFlag g_stop{0};  // a signal handler can reach nothing else

void on_signal(int number) {
  g_stop.store(number);
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

// Of memory that is a file: what the file no longer holds, or the storage no longer gives.
void on_bus_error(int) {
  constexpr std::string_view kText =
      "neox-train: SIGBUS: a file that is read as memory became shorter or cannot be read any "
      "more, or /dev/shm is full. Were the training data replaced while the run used them? (Write "
      "a new file and rename it instead.)\n";
  (void)!::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(static_cast<int>(Exit::kIo));
}

}  // namespace

const StopFlag& install_stop_signals() {
  on_stop_signals(on_signal);
  // A reader of the log that went away, as tee does at Ctrl-C, must not end a run before it saves.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGBUS, on_bus_error);
  return g_stop;
}

}  // namespace neox
