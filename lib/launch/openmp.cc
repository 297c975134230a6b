#include "launch/openmp.h"

#include <unistd.h>

#include <cstdlib>

namespace neox {
namespace {

// Some 50 microseconds. On two cores alone a step of training and a token take as long with any
// number of turns; beside another process a step of small operations had 28 s of CPU with 300,000,
// 5.2 with 10,000, 2.8 with 3000 and 2.0 with none.
constexpr const char* kTurns = "3000";

}  // namespace

bool let_openmp_threads_sleep() {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return false;
  return ::setenv("GOMP_SPINCOUNT", kTurns, 0) == 0;
}

void let_own_openmp_threads_sleep(char** arguments) {
  if (let_openmp_threads_sleep()) ::execv("/proc/self/exe", arguments);
}

}  // namespace neox
