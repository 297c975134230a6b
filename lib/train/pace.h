// Which ranks of a job the others wait for: a GPU that is throttled, a node that something else
// uses, storage that is slow from one node. All ranks take as many steps a second, so that only
// each one's own part of a step (train/own_time.h) tells them apart.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "rendezvous/job.h"

namespace neox {

class Pace {
 public:
  // The first layout.size() ranks of the job train. window: that what is said is a mean over.
  Pace(Job& job, const Layout& layout,
       std::chrono::duration<double> window = std::chrono::seconds(30));

  // Each rank, of each step.
  void step(double own_seconds);

  struct Look {
    double slowest;       // own part of the rank that is slowest beside its stage's median
    std::string warning;  // "": nothing new
  };
  // Rank 0, now and then; nothing where the window has not passed. A rank is slow that is so in two
  // windows in a row.
  std::optional<Look> look();

 private:
  struct Count {
    int64_t steps = 0;
    double seconds = 0;
  };
  std::vector<Count> counts() const;  // told so far
  std::string warning(const std::vector<int>& slow, const std::vector<double>& times,
                      const std::vector<double>& medians) const;

  Job& job_;
  const Layout layout_;
  const std::chrono::duration<double> window_;
  Count own_;
  std::vector<Count> before_;  // at the last look
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  std::vector<int> suspected_;  // slow in the last window
  std::vector<int> named_;      // in the last warning
};

}  // namespace neox
