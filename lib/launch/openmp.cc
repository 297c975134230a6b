#include "launch/openmp.h"

#include <cstdlib>

namespace neox {
namespace {

void set_wait_policy(int, char**, char**) {
  if (!std::getenv("GOMP_SPINCOUNT")) ::setenv("OMP_WAIT_POLICY", "passive", 0);
}

// Runs before the constructors of shared libraries, of which the OpenMP runtime is one; main()
// would be too late.
[[gnu::section(".preinit_array"), gnu::used]] void (*const g_preinit)(int, char**,
                                                                      char**) = set_wait_policy;

}  // namespace

void let_openmp_threads_sleep() {}

}  // namespace neox
