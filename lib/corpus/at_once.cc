#include "corpus/at_once.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace neox {

void at_once(size_t count, int threads, const std::function<void(size_t)>& work,
             const std::function<void()>& failed) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr thrown;  // guarded by it
  auto run = [&] {
    for (size_t i; (i = next++) < count;) {
      try {
        work(i);
      } catch (...) {
        next = count;
        std::lock_guard lock(mutex);
        if (!thrown) thrown = std::current_exception();
        failed();
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (size_t i = 1; i < std::min(count, static_cast<size_t>(std::max(threads, 1))); ++i)
      workers.emplace_back(run);
    run();
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace neox
