#include "train/schedule.h"

#include <algorithm>

namespace neox {

std::vector<Action> one_f_one_b(int stage, int stages, int64_t microbatches) {
  std::vector<Action> actions;
  int64_t warmup = std::min<int64_t>(stages - stage - 1, microbatches), forward = 0, backward = 0;
  while (forward < warmup) actions.push_back({Action::kForward, forward++});
  while (forward < microbatches) {
    actions.push_back({Action::kForward, forward++});
    actions.push_back({Action::kBackward, backward++});
  }
  while (backward < microbatches) actions.push_back({Action::kBackward, backward++});
  return actions;
}

std::vector<Action> forward_only(int64_t microbatches) {
  std::vector<Action> actions;
  for (int64_t m = 0; m < microbatches; ++m) actions.push_back({Action::kForward, m});
  return actions;
}

}  // namespace neox
