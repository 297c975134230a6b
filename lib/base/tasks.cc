#include "base/tasks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
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
  try {
    while (running.size() + 1 < std::min(threads, count))
      running.emplace_back([&] { run(others); });
  } catch (const std::system_error&) {}  // those that there are do it
  run([&] {
    others();
    if (poll) poll();
  });
  running.clear();
  if (error) std::rethrow_exception(error);
}

void run_tasks(size_t count, size_t threads, const std::function<void(size_t)>& work) {
  run_tasks(count, threads, {}, [&](size_t i, const Poll&) { work(i); });
}

}  // namespace neox
