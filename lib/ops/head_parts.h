// How the heads of attention are shared out over threads: each as a whole, or, where there are more
// threads than heads, in parts of its queries and keys.
#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>

namespace neox {

struct Range {
  int64_t from, end;
  bool empty() const { return from >= end; }
  bool has(int64_t i) const { return i >= from && i < end; }
};

constexpr int64_t kPartStep = 128;  // of which parts begin at multiples

inline int64_t threads_for_heads() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

// Parts of each of so many heads of T positions, if the work of all parts is `cost` of that of the
// whole; 1 where that would not end earlier.
inline int64_t parts_of_head(int64_t heads, int64_t T, double cost) {
  constexpr int64_t kTasksOfThread = 4;  // some are shorter
  int64_t threads = threads_for_heads(), blocks = (T + kPartStep - 1) / kPartStep;
  auto each = static_cast<double>(heads) / static_cast<double>(threads);
  if (cost * each >= std::ceil(each)) return 1;
  return std::clamp<int64_t>(kTasksOfThread * threads / heads, 1, blocks);
}

// Part i of n of T positions, such that each has as much of the triangle of queries and the keys
// that they see: the part's queries, or, with `keys`, keys.
inline Range part_of_head(int64_t T, int64_t i, int64_t n, bool keys) {
  auto edge = [&](int64_t k) {
    double share = static_cast<double>(k) / static_cast<double>(n),
           at = (keys ? 1 - std::sqrt(1 - share) : std::sqrt(share)) * static_cast<double>(T);
    return k == n ? T : static_cast<int64_t>(at) / kPartStep * kPartStep;
  };
  return {edge(i), edge(i + 1)};
}

// f(sample, head, task, room) of all `tasks` of each head of q [B, H, T, D], over the threads, each
// of which has a RoomOf(T, D) and takes the next one.
template <class RoomOf, class F>
void each_task(const at::Tensor& q, int64_t tasks, const F& f) {
  int64_t H = q.size(1), all = q.size(0) * H * tasks;
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, std::min(threads_for_heads(), all), 1, [&](int64_t, int64_t) {
    at::NoGradGuard no_grad;
    RoomOf room(q.size(2), q.size(3));
    for (int64_t i = next++; i < all; i = next++) f(i / tasks / H, i / tasks % H, i % tasks, room);
  });
}

// f(sample, head, queries, keys, room): whose gradients are asked for, of all heads. In parts,
// those of keys and those of queries are tasks of their own, each of which computes scores again, 7
// products instead of 5: so sums keep their order.
template <class RoomOf, class F>
void each_gradient_task(const at::Tensor& q, const F& f) {
  int64_t T = q.size(2), parts = parts_of_head(q.size(0) * q.size(1), T, 1.4);
  each_task<RoomOf>(
      q, parts == 1 ? 1 : 2 * parts, [&](int64_t b, int64_t h, int64_t i, RoomOf& room) {
        Range queries = {0, T}, keys = {0, T};
        if (parts > 1) {
          queries = i < parts ? Range{0, 0} : part_of_head(T, i - parts, parts, false);
          keys = i < parts ? part_of_head(T, i, parts, true) : Range{0, 0};
        }
        if (!queries.empty() || !keys.empty()) f(b, h, queries, keys, room);
      });
}

}  // namespace neox
