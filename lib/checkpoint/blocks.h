// Large payloads go in blocks, by several threads: the disk has several requests at hand, and bytes
// are copied and summed up while they lie in a cache.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/checksum.h"
#include "checkpoint/raw_file.h"

namespace neox {

// Of one request: large enough for the disk's rate, small enough for a cache.
inline constexpr size_t kBlockBytes = size_t{4} << 20;

// What is done with each of the blocks 0, 1, 2 ... `memory` has kBlockBytes, begins at a page, and
// is the block's own from `before` to `after`.
struct BlockSteps {
  using Step = std::function<void(size_t block, std::span<std::byte> memory)>;
  Step before;   // several blocks at once
  Step in_turn;  // one block after the other
  Step after;    // several blocks at once
};

// Returns when all blocks are done. Throws what the first step threw that did; the others end then.
void run_blocks(size_t count, const BlockSteps& steps);

// Checksums of ranges of a file whose bytes come in order.
class RangeSums {
 public:
  using Done = std::function<void(size_t range, const Checksum& sum)>;
  // ranges: ascending, without overlap. `done` is called as soon as a range is complete.
  RangeSums(std::vector<ByteRange> ranges, Done done);
  // The bytes at `offset`, which come after those of the call before; what lies in no range counts
  // for nothing.
  void add(std::span<const std::byte> bytes, int64_t offset);

 private:
  std::vector<ByteRange> ranges_;
  Done done_;
  size_t range_ = 0;  // the one that is not complete
  Checksummer sum_;
};

}  // namespace neox
