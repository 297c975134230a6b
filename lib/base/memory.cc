#include "base/memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace neox {

void keep_freed_memory() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
  ::mallopt(M_TOP_PAD, 64 << 20);
}

void share_freed_memory() {
  keep_freed_memory();
  ::mallopt(M_ARENA_MAX, 1);
}

int64_t peak_memory() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

double process_age() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string text;
  std::getline(stat, text, ')');  // pid and name, which may hold anything
  double now = 0, ticks = 0;
  for (int field = 3; field < 22; ++field) stat >> text;
  stat >> ticks;  // field 22: start time in clock ticks after boot
  uptime >> now;
  return now - ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace neox
