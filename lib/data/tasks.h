// Work on a few threads.
#pragma once
#include <cstddef>
#include <functional>

#include "data/numpy_random.h"

namespace neox {

// work(i, poll) for each i < count, on up to `threads` threads, of which this is one. An error of
// one ends the others, as soon as they poll, and is thrown here. `poll` is called on this thread
// alone.
void run_tasks(size_t count, size_t threads, const Poll& poll,
               const std::function<void(size_t, const Poll&)>& work);

}  // namespace neox
