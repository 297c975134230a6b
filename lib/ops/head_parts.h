// How the heads of attention are shared out over threads: each as a whole, or, where there are more
// threads than heads, in parts of its queries and keys.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "ops/range.h"

namespace neox {

constexpr int64_t kPartStep = 128;  // of which parts begin at multiples

// Parts of each of so many heads of T positions, if the work of all parts is `cost` of that of the
// whole; 1 where that would not end earlier.
int64_t parts_of_head(int64_t heads, int64_t T, double cost);

// Part i of n of T positions, such that each has as much of the triangle of queries and the keys
// that they see: the part's queries, or, with `keys`, keys.
Range part_of_head(int64_t T, int64_t i, int64_t n, bool keys);

// work(next) on each thread, without gradients: next() is a number below n that no thread has had,
// and n at the end.
void on_threads(int64_t n, const std::function<void(const std::function<int64_t()>&)>& work);

// f(sample, head, task, room) of all `tasks` of each head of q [B, H, T, D], over the threads, each
// of which has a RoomOf(T, D) and takes the next one.
template <class RoomOf, class F>
void each_task(const at::Tensor& q, int64_t tasks, const F& f) {
  int64_t H = q.size(1), all = q.size(0) * H * tasks;
  on_threads(all, [&](const std::function<int64_t()>& next) {
    RoomOf room(q.size(2), q.size(3));
    for (int64_t i = next(); i < all; i = next()) f(i / tasks / H, i / tasks % H, i % tasks, room);
  });
}

// f(sample, head, queries, room) of all heads, in parts of queries if that is `cost` of the work of
// whole heads.
template <class RoomOf, class F>
void each_query_task(const at::Tensor& q, double cost, const F& f) {
  int64_t T = q.size(2), parts = parts_of_head(q.size(0) * q.size(1), T, cost);
  each_task<RoomOf>(q, parts, [&](int64_t b, int64_t h, int64_t i, RoomOf& room) {
    Range queries = part_of_head(T, i, parts, false);
    if (!queries.empty()) f(b, h, queries, room);
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
