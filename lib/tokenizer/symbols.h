// Byte-pair encoding of any symbols (Sennrich et al. 2016): of the neighbours that may be joined
// the most urgent first, of equally urgent ones the left ones.
#pragma once
#include <cstdint>
#include <optional>
#include <queue>
#include <string_view>
#include <vector>

namespace neox {

struct Symbol {
  std::string_view text;  // empty: a part of another one now
  int previous, next;     // -1: none
  int32_t id;             // what the rule knows it by
};

struct Joined {
  float urgency;
  int32_t id;
};

// A chain of symbols, one behind the other.
inline void add_symbol(std::vector<Symbol>& symbols, std::string_view text, int32_t id) {
  int i = static_cast<int>(symbols.size());
  if (i > 0) symbols.back().next = i;
  symbols.push_back({text, i - 1, -1, id});
}

// Joins what rule(left, right) gives a std::optional<Joined> for. Where the texts of neighbours do
// not adjoin, that of both is only as long as they are.
template <class Rule>
void join_symbols(std::vector<Symbol>& symbols, const Rule& rule) {
  struct Pair {
    Joined joined;
    int left, right;
    size_t bytes;
    bool operator<(const Pair& other) const {  // the less urgent one
      float a = joined.urgency, b = other.joined.urgency;
      return a < b || (a == b && left > other.left);
    }
  };
  std::priority_queue<Pair> pairs;
  auto at = [&](int i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  auto propose = [&](int left, int right) {
    if (left < 0 || right < 0) return;
    const Symbol &a = at(left), &b = at(right);
    if (std::optional<Joined> joined = rule(a, b))
      pairs.push({*joined, left, right, a.text.size() + b.text.size()});
  };
  for (int i = 1; i < static_cast<int>(symbols.size()); ++i) propose(i - 1, i);
  while (!pairs.empty()) {
    Pair top = pairs.top();
    pairs.pop();
    Symbol &a = at(top.left), &b = at(top.right);
    if (a.text.empty() || b.text.empty() || a.text.size() + b.text.size() != top.bytes) continue;
    a.text = std::string_view(a.text.data(), top.bytes);
    a.id = top.joined.id;
    b.text = {};
    a.next = b.next;
    if (b.next >= 0) at(b.next).previous = top.left;
    propose(a.previous, top.left);
    propose(top.left, a.next);
  }
}

}  // namespace neox
