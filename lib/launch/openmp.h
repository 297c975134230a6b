// Settings of the OpenMP runtime that must stand before it is loaded.
#pragma once

namespace neox {

// Idle OpenMP threads sleep instead of spinning, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT is set:
// spinning threads that share a core with other work slow small operations down by a factor of 50.
// Being linked does it; calling it links it.
void let_openmp_threads_sleep();

}  // namespace neox
