// SentencePiece's precompiled table of characters: texts, mostly single characters, and what stands
// for them. Immutable.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace neox {

class Charsmap {
 public:
  // The bytes of the field precompiled_charsmap; of none an empty table. Throws Error that begins
  // with the name where they are damaged.
  Charsmap(std::string_view bytes, std::string_view name);

  struct Found {
    size_t bytes;           // of the text
    std::string_view made;  // what stands for them
  };
  // The shortest and the longest key that the text begins with.
  std::optional<Found> shortest(std::string_view text) const { return find(text, true); }
  std::optional<Found> longest(std::string_view text) const { return find(text, false); }
  // What Hugging Face's Precompiled makes of a text: it looks for the shortest key in each grapheme
  // of fewer than 6 bytes, whose rest is lost then, else in its characters.
  std::string by_graphemes(std::string_view text) const;

 private:
  std::optional<Found> find(std::string_view text, bool shortest) const;
  uint32_t unit(size_t i) const { return i < trie_.size() ? trie_[i] : 0; }

  std::vector<uint32_t> trie_;  // a double array (Aoe 1989), as of the library Darts-clone
  std::string made_;            // texts that end with zero bytes, by their offsets
};

}  // namespace neox
