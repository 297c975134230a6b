// Work on a few threads.
#pragma once
#include <cstddef>
#include <functional>

namespace neox {

// Called often by long work; may throw to end it.
using Poll = std::function<void()>;

// work(i) for each i < count, begun in this order, on up to `threads` threads, of which this is
// one; fewer where the system gives no more. After an error no other is begun, and the first of
// them is thrown here.
void run_tasks(size_t count, size_t threads, const std::function<void(size_t)>& work);

// The same with work(i, poll): an error of one ends the others as soon as they poll. `poll` is
// called on this thread alone.
void run_tasks(size_t count, size_t threads, const Poll& poll,
               const std::function<void(size_t, const Poll&)>& work);

}  // namespace neox
