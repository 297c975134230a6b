#include "base/memory.h"

#include <malloc.h>
#include <sys/resource.h>

namespace neox {

void keep_freed_memory() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
  ::mallopt(M_TOP_PAD, 64 << 20);
}

int64_t peak_memory() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace neox
