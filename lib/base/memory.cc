#include "base/memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/control_groups.h"

namespace neox {

namespace fs = std::filesystem;

namespace {

// Files of a control group, of version 2 or 1.
struct GroupFiles {
  const char *limit, *used, *stat_prefix;
};
constexpr GroupFiles kUnified{"memory.max", "memory.current", ""},
    kLegacy{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};

// What its files can give back counts as free.
int64_t left_in(const fs::path& group, const GroupFiles& files) {
  int64_t limit = 0, used = 0, value = 0;
  if (!(std::ifstream(group / files.limit) >> limit) ||
      !(std::ifstream(group / files.used) >> used))
    return std::numeric_limits<int64_t>::max();
  const std::string prefix = files.stat_prefix;
  std::ifstream stat(group / "memory.stat");
  for (std::string name; stat >> name >> value;)
    if (name == prefix + "inactive_file" || name == prefix + "active_file") used -= value;
  // The kernel counts them apart: at times there are more of them than is used, and "no limit" is
  // nearly the greatest number.
  return std::max<int64_t>(limit - std::max<int64_t>(used, 0), 0);
}

}  // namespace

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

int64_t memory_of_groups(const fs::path& groups, const fs::path& root) {
  return least_in_groups(groups, root,
                         {.controller = "memory",
                          .unified = [](const fs::path& group) { return left_in(group, kUnified); },
                          .legacy = [](const fs::path& group) { return left_in(group, kLegacy); }});
}

int64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string name, unit;
  int64_t free = std::numeric_limits<int64_t>::max();
  for (int64_t kib; info >> name >> kib && std::getline(info, unit);)
    if (name == "MemAvailable:") free = kib * 1024;
  return std::min(free, memory_of_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
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
