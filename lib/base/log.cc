#include "base/log.h"

#include <unistd.h>

#include <ctime>

namespace neox {
namespace {

thread_local int t_rank = 0;
thread_local int t_world = 1;

}  // namespace

void set_log_rank(int rank, int world) {
  t_rank = rank;
  t_world = world;
}

void write_log(const char* level, const std::string& text) {
  char when[32];
  std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::strftime(when, sizeof when, "%H:%M:%S ", &local);
  std::string line = when;
  if (t_world > 1) line += concat("[rank ", t_rank, "] ");
  line += level + text + "\n";
  // One write, so that lines of several threads or processes do not mix. A lost log line is no
  // error.
  [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace neox
