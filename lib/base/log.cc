#include "base/log.h"

#include <unistd.h>

#include <ctime>
#include <mutex>

namespace neox {
namespace {

thread_local int t_rank = 0;
thread_local int t_world = 1;

// A process has one standard error, so the line at its bottom is the process's too.
std::mutex g_mutex;
std::string g_live_line;  // guarded by g_mutex

constexpr const char* kClearLine = "\r\033[K";

// One write, so that lines of several processes do not mix. A lost log line is no error.
void write_stderr(const std::string& text) {
  [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
}

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
  std::strftime(when, sizeof when, "%F %T ", &local);
  std::string line = when;
  if (t_world > 1) line += concat("[rank ", t_rank, "] ");
  line += level + text + "\n";
  std::lock_guard lock(g_mutex);
  write_stderr(g_live_line.empty() ? line : kClearLine + line + g_live_line);
}

void set_live_line(const std::string& line) {
  std::lock_guard lock(g_mutex);
  if (line.empty() && g_live_line.empty()) return;
  g_live_line = line;
  write_stderr(kClearLine + line);
}

}  // namespace neox
