// Compiled with OpenMP.
#include "ops/team.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <atomic>

namespace neox {

struct Team::Meeting {
  alignas(64) std::atomic<int> here = 0;
  alignas(64) std::atomic<uint32_t> number = 0;
};

void Team::meet() {
  constexpr int kPolls = 20000;  // some 50 microseconds; then the thread sleeps
  if (size_ == 1) return;
  uint32_t number = meeting_.number.load(std::memory_order_acquire);
  if (meeting_.here.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    meeting_.here.store(0, std::memory_order_relaxed);
    meeting_.number.store(number + 1, std::memory_order_release);
    meeting_.number.notify_all();
    return;
  }
  for (int i = 0; i < kPolls; ++i)
    if (meeting_.number.load(std::memory_order_acquire) != number) return;
  meeting_.number.wait(number, std::memory_order_acquire);
}

void run_team(int threads, const std::function<void(Team&)>& work) {
  Team::Meeting meeting;
#pragma omp parallel num_threads(threads)
  {
    Team team(omp_get_thread_num(), omp_get_num_threads(), meeting);
    work(team);
  }
}

int64_t threads_here() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

}  // namespace neox
