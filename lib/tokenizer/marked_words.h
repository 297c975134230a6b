// Texts whose spaces are written as U+2581, as SentencePiece does it: their words, each with the
// marks in front of it, one by one.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace neox {

inline constexpr std::string_view kSpmSpace = "\xE2\x96\x81";  // U+2581, for ' '

inline std::string without_marks(std::string text) {
  for (size_t at = 0; (at = text.find(kSpmSpace, at)) != text.npos; ++at)
    text.replace(at, kSpmSpace.size(), " ");
  return text;
}

// Whether a token reaches over the beginning of a word: words can't be encoded one by one then.
inline bool spans_words(std::string_view token) {
  for (size_t at = token.find(kSpmSpace); at != token.npos; at = token.find(kSpmSpace, at + 1))
    if (at > 0 && !token.substr(0, at).ends_with(kSpmSpace)) return true;
  return false;
}

// A number for each tokenizer of the process.
inline uint64_t new_words_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// Finds strings by views of them.
struct WordHash : std::hash<std::string_view> {
  using is_transparent = void;
};

// Appends the ids of a word, which encode(word, ids) gives. A thread remembers the words of the
// tokenizer, by its number, that it used last.
template <class Encode>
void encode_remembered(uint64_t number, std::string_view word, std::vector<int32_t>& ids,
                       const Encode& encode) {
  constexpr size_t kLongestKept = 64, kMostKept = 1 << 16;
  struct Memory {
    uint64_t number = 0;
    std::unordered_map<std::string, std::vector<int32_t>, WordHash, std::equal_to<>> words;
  };
  thread_local Memory memory;
  if (word.size() > kLongestKept) return encode(word, ids);
  if (memory.number != number) memory.words.clear(), memory.number = number;
  auto found = memory.words.find(word);
  if (found == memory.words.end()) {
    std::vector<int32_t> made;
    encode(word, made);
    if (memory.words.size() >= kMostKept) memory.words.clear();
    found = memory.words.emplace(word, std::move(made)).first;
  }
  ids.insert(ids.end(), found->second.begin(), found->second.end());
}

// The same for each word of a text.
template <class Encode>
void encode_marked_words(uint64_t number, std::string_view text, std::vector<int32_t>& ids,
                         const Encode& encode) {
  while (!text.empty()) {
    size_t begun = 0;  // behind the spaces of this word
    while (text.substr(begun).starts_with(kSpmSpace)) begun += kSpmSpace.size();
    size_t end = std::min(text.find(kSpmSpace, begun), text.size());
    encode_remembered(number, text.substr(0, end), ids, encode);
    text.remove_prefix(end);
  }
}

}  // namespace neox
