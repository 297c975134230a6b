// Steps of one token that look the same each time, so that a GPU can have them recorded: all rows
// of a cache, of which some may be empty; where a row stands is data; and the keys that are looked
// at are as many as the longest row has, rounded up. Each step leaves the likeliest next tokens
// where the next one finds them, so that the host need not see them in between.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "model/replay.h"

namespace neox {

struct DecodeReplay {
  static constexpr int64_t kSeen = 256;  // what is rounded up to

  struct Step {
    Replay replay;
    at::Tensor output;  // stays where it is
  };
  // Of a cache of so many rows. Recorder null: steps run as they are.
  DecodeReplay(std::unique_ptr<GraphRecorder> by, int64_t rows, at::Device device);

  // The steps that look at so many keys.
  Step& step(int64_t seen) {
    return steps.try_emplace(seen, Replay(recorder.get(), "a step of generation"), at::Tensor())
        .first->second;
  }
  // From now on rows stand where the host says, and the others stay empty.
  void place(std::vector<int64_t> lengths);
  // Layers run by kernels for few rows (GptNeoX::row_step) from now on.
  void use_row_kernels(int64_t heads);
  at::Tensor lengths() const { return rows[0]; }
  at::Tensor in_use() const { return rows[1]; }
  // The likeliest tokens by logits [n, V] become the last ones of the rows from this one on.
  void choose(const at::Tensor& logits, int64_t first_row);
  // The same for all rows, which move on. Logits undefined, as on other stages: they only move on.
  void advance(const at::Tensor& logits);

  std::unique_ptr<GraphRecorder> recorder;
  std::map<int64_t, Step> steps;
  at::Tensor tokens;            // [rows, 1] int64: the last one of each
  int64_t vocab = 0;            // only ids below it are chosen; 0: all
  at::Tensor rows;              // [{length, 1 of a row in use}, rows] int64
  at::Tensor arrived;           // as of CacheStep; undefined: the model's own layers
  std::vector<int64_t> placed;  // the lengths that are in it
};

}  // namespace neox
