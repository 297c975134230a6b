#include "ops/head_parts.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "ops/team.h"

namespace neox {

int64_t parts_of_head(int64_t heads, int64_t T, double cost) {
  constexpr int64_t kTasksOfThread = 4;  // some are shorter
  int64_t blocks = (T + kPartStep - 1) / kPartStep;
  auto each = static_cast<double>(heads) / static_cast<double>(threads_here());
  if (heads == 0 || cost * each >= std::ceil(each)) return 1;
  return std::clamp<int64_t>(kTasksOfThread * threads_here() / heads, 1, blocks);
}

Range part_of_head(int64_t T, int64_t i, int64_t n, bool keys) {
  auto edge = [&](int64_t k) {
    double share = static_cast<double>(k) / static_cast<double>(n),
           at = (keys ? 1 - std::sqrt(1 - share) : std::sqrt(share)) * static_cast<double>(T);
    return k == n ? T : static_cast<int64_t>(at) / kPartStep * kPartStep;
  };
  return {edge(i), edge(i + 1)};
}

void on_threads(int64_t n, const std::function<void(const std::function<int64_t()>&)>& work) {
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, std::min(threads_here(), n), 1, [&](int64_t, int64_t) {
    at::NoGradGuard no_grad;
    work([&]() -> int64_t { return std::min(next++, n); });
  });
}

}  // namespace neox
