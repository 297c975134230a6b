#include "data/tasks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace neox {

void run_tasks(size_t count, size_t threads, const Poll& poll,
               const std::function<void(size_t, const Poll&)>& work) {
  struct Ended {};
  std::atomic<size_t> next = 0;
  std::atomic<bool> end = false;
  std::mutex mutex;
  std::exception_ptr error;
  auto run = [&](const Poll& inner) {
    try {
      for (size_t i; !end && (i = next++) < count;) work(i, inner);
    } catch (const Ended&) {
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      end = true;
    }
  };
  const Poll others = [&] {
    if (end) throw Ended();
  };
  std::vector<std::jthread> running;
  for (size_t i = 1; i < std::min(threads, count); ++i) running.emplace_back([&] { run(others); });
  run([&] {
    others();
    if (poll) poll();
  });
  running.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace neox
