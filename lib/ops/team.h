// Threads that work on one thing step by step: what they do between two meetings takes
// microseconds, so they stay awake for it. OpenMP's threads, those that ATen's operators run on.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>

namespace neox {

class Team {
 public:
  struct Meeting;
  Team(int rank, int size, Meeting& meeting) : rank_(rank), size_(size), meeting_(meeting) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  // Returns when all of the team are here; what they wrote before is seen after.
  void meet();

  struct Share {
    int64_t begin, end;
  };
  // This thread's part of n items, which are dealt out in pieces of `multiple`.
  Share share(int64_t n, int64_t multiple = 1) const { return share_of(rank_, size_, n, multiple); }
  static Share share_of(int64_t rank, int64_t size, int64_t n, int64_t multiple) {
    int64_t pieces = (n + multiple - 1) / multiple;
    auto bound = [&](int64_t of) { return std::min(n, pieces * of / size * multiple); };
    return {bound(rank), bound(rank + 1)};
  }

 private:
  int rank_, size_;
  Meeting& meeting_;
};

// Runs `work`, which must not throw, on up to `threads` threads, of which the caller is one.
void run_team(int threads, const std::function<void(Team&)>& work);

// How many threads at::parallel_for() has here: one within another loop.
int64_t threads_here();

}  // namespace neox
