// Texts with numbers, found as prefixes of another text.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace neox {

class PieceTrie {
 public:
  // Of equal texts the last counts.
  explicit PieceTrie(std::vector<std::pair<std::string, int32_t>> pieces);

  // Calls found(length, number) for every piece that the text begins with, the shortest first.
  template <class Found>
  void each_prefix(std::string_view text, const Found& found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].number >= 0) found(i + 1, nodes_[node].number);
    }
  }
  // The length of the longest of them, or 0.
  size_t longest(std::string_view text) const {
    size_t length = 0;
    each_prefix(text, [&](size_t bytes, int32_t) { length = bytes; });
    return length;
  }

 private:
  struct Node {
    uint32_t first = 0, last = 0;  // its edges
    int32_t number = -1;
  };
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };
  // 0: there is none.
  uint32_t child(uint32_t node, uint8_t byte) const {
    if (node == 0) return roots_[byte];
    for (uint32_t e = nodes_[node].first; e < nodes_[node].last; ++e)
      if (edges_[e].byte == byte) return edges_[e].node;
    return 0;
  }

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<uint32_t, 256> roots_{};
};

}  // namespace neox
