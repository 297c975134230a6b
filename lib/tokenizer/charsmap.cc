#include "tokenizer/charsmap.h"

#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace neox {

Charsmap::Charsmap(std::string_view bytes, std::string_view name) {
  if (bytes.empty()) return;
  uint32_t size = 0;
  if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
  check_io(bytes.size() >= 4 && size % 4 == 0 && size <= bytes.size() - 4, name,
           ": its table of characters (precompiled_charsmap) is damaged");
  trie_.resize(size / 4);
  if (size > 0) std::memcpy(trie_.data(), bytes.data() + 4, size);
  made_ = bytes.substr(4 + size);
  check_io(is_utf8(made_), name,
           ": its table of characters (precompiled_charsmap) is damaged: it makes texts that are "
           "not UTF-8");
  made_ += '\0';
}

std::optional<Charsmap::Found> Charsmap::find(std::string_view text, bool shortest) const {
  auto has_leaf = [](uint32_t unit) { return (unit >> 8 & 1) != 0; };
  auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); };
  size_t found = 0, value = 0, at = offset(unit(0));
  for (size_t i = 0; i < text.size() && !trie_.empty(); ++i) {
    auto byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    uint32_t here = unit(at);
    if ((here & (1u << 31 | 0xFF)) != byte) break;
    at ^= offset(here);
    if (has_leaf(here)) found = i + 1, value = unit(at) & ~(1u << 31);
    if (found && shortest) break;
  }
  if (found == 0) return std::nullopt;
  if (value >= made_.size()) value = made_.size() - 1;
  while (value > 0 && continues_character(made_[value])) --value;
  return Found{found, std::string_view(made_.c_str() + value)};
}

std::string Charsmap::by_graphemes(std::string_view text) const {
  constexpr size_t kLongest = 5;
  std::string out;
  while (!text.empty()) {
    size_t bytes = unicode::grapheme_bytes(text);
    std::string_view grapheme = text.substr(0, bytes);
    text.remove_prefix(bytes);
    std::optional<Found> whole;
    if (bytes <= kLongest) whole = shortest(grapheme);
    if (whole) out += whole->made;
    for (size_t at = 0, size; !whole && at < bytes; at += size) {
      size = unicode::read(grapheme, at).bytes;
      std::string_view character = grapheme.substr(at, size);
      std::optional<Found> one = shortest(character);
      out += one ? one->made : character;
    }
  }
  return out;
}

}  // namespace neox
