// The order of forward and backward passes of a pipeline stage: a pure function.
#pragma once
#include <cstdint>
#include <vector>

namespace neox {

struct Action {
  enum Kind { kForward, kBackward } kind;
  int64_t microbatch;
  bool operator==(const Action&) const = default;
};

// 1F1B (PipeDream-Flush). With one stage it is plain gradient accumulation. Backwards come in the
// order of micro-batches.
std::vector<Action> one_f_one_b(int stage, int stages, int64_t microbatches);

// For evaluation.
std::vector<Action> forward_only(int64_t microbatches);

}  // namespace neox
