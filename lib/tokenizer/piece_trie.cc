#include "tokenizer/piece_trie.h"

#include <algorithm>

namespace neox {

PieceTrie::PieceTrie(std::vector<std::pair<std::string, int32_t>> pieces) {
  std::ranges::stable_sort(pieces, {}, &std::pair<std::string, int32_t>::first);
  struct Range {  // the pieces of a node, and how many bytes lead to it
    size_t first, last, depth;
  };
  std::vector<Range> ranges{{0, pieces.size(), 0}};
  nodes_.emplace_back();
  for (size_t node = 0; node < ranges.size(); ++node) {  // grows while it is walked
    auto [at, last, depth] = ranges[node];
    for (; at < last && pieces[at].first.size() == depth; ++at)
      nodes_[node].number = pieces[at].second;
    nodes_[node].first = static_cast<uint32_t>(edges_.size());
    while (at < last) {
      char byte = pieces[at].first[depth];
      size_t from = at;
      while (at < last && pieces[at].first[depth] == byte) ++at;
      edges_.push_back({static_cast<uint8_t>(byte), static_cast<uint32_t>(ranges.size())});
      ranges.push_back({from, at, depth + 1});
      nodes_.emplace_back();
    }
    nodes_[node].last = static_cast<uint32_t>(edges_.size());
  }
  for (uint32_t e = nodes_[0].first; e < nodes_[0].last; ++e)
    roots_[edges_[e].byte] = edges_[e].node;
}

}  // namespace neox
