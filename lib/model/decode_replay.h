// Steps of one token that look the same each time, so that a GPU can have them recorded: all rows
// of a cache, of which some may be empty; where a row stands is data; and the keys that are looked
// at are as many as the longest row has, rounded up.
#pragma once
#include <map>
#include <memory>

#include "model/replay.h"

namespace neox {

struct DecodeReplay {
  static constexpr int64_t kSeen = 256;  // what is rounded up to

  struct Step {
    Replay replay;
    at::Tensor output;  // stays where it is
  };
  // Null: steps run as they are.
  explicit DecodeReplay(std::unique_ptr<GraphRecorder> by) : recorder(std::move(by)) {}
  // The steps that look at so many keys.
  Step& step(int64_t seen) {
    return steps.try_emplace(seen, Replay(recorder.get(), "a step of generation"), at::Tensor())
        .first->second;
  }

  std::unique_ptr<GraphRecorder> recorder;
  std::map<int64_t, Step> steps;
};

}  // namespace neox
