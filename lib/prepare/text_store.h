// Keeps texts that are made one by one, in few allocations; what it gives out stays in its place,
// also when the store is moved.
#pragma once
#include <algorithm>
#include <deque>
#include <string>
#include <string_view>

namespace neox {

class TextStore {
 public:
  std::string_view keep(std::string_view text) {
    if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().size() < text.size())
      chunks_.emplace_back().reserve(std::max(kChunkBytes, text.size()));
    std::string& chunk = chunks_.back();
    size_t at = chunk.size();
    chunk += text;
    return std::string_view(chunk).substr(at);
  }
  std::string_view keep(std::string&& text) {
    if (text.size() < kChunkBytes) return keep(std::string_view(text));
    return chunks_.emplace_front(std::move(text));
  }

 private:
  static constexpr size_t kChunkBytes = 1 << 16;
  std::deque<std::string> chunks_;  // none grows beyond its capacity
};

}  // namespace neox
