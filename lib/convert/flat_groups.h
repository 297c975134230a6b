// The arithmetic of DeepSpeed's flat vectors: an optimizer's state of a group of parameters, one
// after the other, cut into pieces for the ranks. Pure functions.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace neox {

// Elements of the pieces without their padding, of which together there are `total`. All padding is
// at the end of the whole vector, and may be longer than the last piece, which counts it. Files
// hold pieces with all of it, with a part, or without. Throws (74) where the pieces hold fewer
// elements than `total`, or more than padding explains; `where` is for messages.
std::vector<int64_t> without_padding(const std::vector<int64_t>& pieces,
                                     const std::vector<int64_t>& paddings, int64_t total,
                                     const std::string& where);

// A run of elements of a piece.
struct PieceRun {
  size_t piece = 0;
  int64_t first = 0, count = 0;
};

// Where elements first .. first + count - 1 of the whole vector lie.
std::vector<PieceRun> runs_of(const std::vector<int64_t>& pieces, int64_t first, int64_t count);

// Elements by group: with weight decay, without.
using GroupSizes = std::array<int64_t, 2>;

// Pipeline stages hold consecutive layers: the first layer of each, found from how many elements
// the groups of each stage have. `tied`: what the last stage has besides, a copy of the embedding,
// where it is not the only one. Throws (74) where the sizes fit no such sharing.
std::vector<size_t> stage_starts(const std::vector<GroupSizes>& layers,
                                 const std::vector<GroupSizes>& stages, const GroupSizes& tied,
                                 const std::string& where);

}  // namespace neox
