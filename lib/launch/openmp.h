// Settings of the OpenMP runtime that must stand before it is loaded.
#pragma once

namespace neox {

// Idle OpenMP threads soon sleep instead of spinning, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT is
// set: libgomp's usual 300,000 turns take milliseconds, in each of which a thread that shares its
// core with other work keeps that from going on; small operations take 20 times as long then. Sets
// the environment of what the program becomes or starts, since a runtime that is loaded has read
// its own. False where it stands there already.
bool let_openmp_threads_sleep();
// For programs that have no front: becomes the program anew.
void let_own_openmp_threads_sleep(char** arguments);

}  // namespace neox
