// The order in which a run sees the samples of one corpus: GPT-NeoX's, bit for bit (gpt2_dataset.py
// with packed samples, and its helpers.cpp). The documents, repeated for as many epochs as the
// samples asked need, are shuffled and joined; the join is cut into samples of seq tokens, each
// with one token of the next; the samples are shuffled. docs/data.md has the formulas. Pure
// functions.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/indexed_dataset.h"
#include "data/numpy_random.h"

namespace neox {

// Sequences first .. end - 1 of a dataset.
struct SequenceRange {
  int64_t first = 0, end = 0;
  int64_t size() const { return end - first; }
};

// The shares of train, valid and test in `size` sequences by a split such as "969, 30, 1": each
// share is rounded (half to even) and all boundaries are moved by the total error. Throws Error
// (64) naming what cannot be read.
std::array<SequenceRange, 3> split_sequences(const std::string& split, int64_t size);

// What is asked of a corpus.
struct SampleRequest {
  SequenceRange range;
  int64_t seq = 0;
  int64_t samples = 0;
  int64_t seed = 1234;
};

struct SampleIndex {
  // Where a sample begins: a place in `documents`, and tokens from the start of that document.
  struct Position {
    uint32_t document;
    int32_t offset;
    bool operator==(const Position&) const = default;
  };
  std::vector<int32_t> documents;   // sequence numbers in the order they are joined
  std::vector<Position> positions;  // one for each sample, and the end of the last
  std::vector<uint32_t> shuffle;    // the sample that comes i-th

  int64_t num_samples() const { return static_cast<int64_t>(shuffle.size()); }
};

// Epochs that give that many samples: the smallest E >= 1 with (E * tokens - 1) / seq >= samples.
int64_t num_epochs(int64_t tokens, int64_t seq, int64_t samples);

// Throws Error (64) where the range has no tokens, or the samples asked are too many to be held.
// `name` begins the messages.
SampleIndex build_sample_index(const UnalignedSpan<int32_t>& lengths, const SampleRequest& request,
                               const std::string& name, const Poll& poll = {});

}  // namespace neox
