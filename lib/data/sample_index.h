// The order in which a run sees the samples of one dataset, bit for bit that of GPT-NeoX
// (gpt2_dataset.py and its helpers.cpp), of Megatron until 2023 or of Megatron-Core
// (gpt_dataset.py). The documents, repeated for as many epochs as the samples asked need, are
// shuffled and joined; the join is cut into samples of seq tokens, each with one token of the next;
// the samples are shuffled. docs/sample-order.md has the formulas. Pure functions.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/indexed_dataset.h"
#include "data/numpy_random.h"
#include "data/split.h"

namespace neox {

// What is asked of a dataset.
struct SampleRequest {
  SequenceRange range;
  int64_t seq = 0;
  int64_t samples = 0;  // or kOneEpoch
  int64_t seed = 1234;
  DataOrder order = DataOrder::kNeox;
  Packing packing = Packing::kPacked;
  bool pairs = false;  // unpacked: in the order of GPT-NeoX's pairwise_dataset.py
  // Not packed: whether the documents of the range are left out. Empty: none is.
  std::vector<bool> left_out = {};
};

// Where the samples of a dataset lie. Its arrays are in memory of its own or in a mapped file.
struct SampleIndex {
  // A place in `documents`, and tokens from the start of that document.
  struct Position {
    uint32_t document;
    int32_t offset;
    bool operator==(const Position&) const = default;
  };
  std::span<const int32_t> documents;   // sequence numbers in the order they are joined
  std::span<const Position> positions;  // where each sample begins, and the end of the last
  std::span<const uint32_t> shuffle;    // the sample that comes i-th
  std::shared_ptr<const void> memory;   // in which they lie

  int64_t num_samples() const { return static_cast<int64_t>(shuffle.size()); }
};

// Most samples, and most documents times epochs, that an index holds.
inline constexpr int64_t kMaxEntries = UINT32_MAX - 2;

// Of the sequences of the range.
int64_t count_tokens(const UnalignedSpan<int32_t>& lengths, SequenceRange range,
                     const Poll& poll = {});

// Epochs that give that many samples: the smallest E >= 1 with (E * tokens - 1) / seq >= samples.
int64_t num_epochs(int64_t tokens, int64_t seq, int64_t samples);

// Packed or not, as asked. Throws Error (64) where the range has no tokens, or the samples asked
// are too many to be held. `name` begins the messages.
SampleIndex build_sample_index(const UnalignedSpan<int32_t>& lengths, const SampleRequest& request,
                               const std::string& name, const Poll& poll = {});

// Of whole documents (whole_documents.cc): GPT-NeoX's pack_until_overflow and unpacked.
SampleIndex build_whole_documents(const UnalignedSpan<int32_t>& lengths,
                                  const SampleRequest& request, const std::string& name,
                                  const Poll& poll);

}  // namespace neox
