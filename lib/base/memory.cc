#include "base/memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace neox {
namespace {

namespace fs = std::filesystem;

const fs::path kGroups = "/sys/fs/cgroup";

fs::path own_group() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::/"))
      return (kGroups / line.substr(4)).lexically_normal();  // a/b, or with a / behind
  return kGroups;
}

// What its files can give back counts as free.
int64_t left_in(const fs::path& group) {
  int64_t limit = 0, used = 0, value = 0;
  if (!(std::ifstream(group / "memory.max") >> limit) ||
      !(std::ifstream(group / "memory.current") >> used))
    return std::numeric_limits<int64_t>::max();
  std::ifstream stat(group / "memory.stat");
  for (std::string name; stat >> name >> value;)
    if (name == "inactive_file" || name == "active_file") used -= value;
  return std::max<int64_t>(limit - used, 0);
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

int64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string name, unit;
  int64_t free = std::numeric_limits<int64_t>::max();
  for (int64_t kib; info >> name >> kib && std::getline(info, unit);)
    if (name == "MemAvailable:") free = kib * 1024;
  for (fs::path group = own_group(); group != kGroups.parent_path(); group = group.parent_path())
    free = std::min(free, left_in(group));
  return free;
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
