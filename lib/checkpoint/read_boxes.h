// The boxes that are wanted of one rank file, read in blocks, and copied to where they are wanted.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/catalog.h"
#include "checkpoint/checkpoint.h"

namespace neox {

// A box that somebody wants, in the elements of the chunk from `offset` on.
struct Want {
  const StateChunk* chunk;
  Box box;
  int64_t offset;
};

struct BoxRead {
  const StoredBox* box;
  ByteRange range;  // in the file
  at::ScalarType dtype;
  const std::vector<Want>* wants;
};

// boxes: of this file, ascending. `read` is called with the checksum of what was found in each; it
// throws where that is not right.
void read_boxes(const RawFile& file, std::span<const BoxRead> boxes,
                const std::function<void(const BoxRead&, const Checksum&)>& read);

}  // namespace neox
