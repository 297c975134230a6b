#include "tokenizer/spm_normalizer.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/marked_words.h"

namespace neox {

SpmNormalizer::SpmNormalizer(const SpmModel& model, const PieceTrie& kept)
    : kept_(kept),
      dummy_prefix_(model.dummy_prefix),
      remove_extra_spaces_(model.remove_extra_spaces),
      space_(model.escape_spaces ? kSpmSpace : " ") {
  std::string_view map = model.charsmap;
  if (map.empty()) return;
  uint32_t size = 0;
  if (map.size() >= 4) std::memcpy(&size, map.data(), 4);
  check_io(map.size() >= 4 && size % 4 == 0 && size <= map.size() - 4, model.name,
           ": its table of characters (precompiled_charsmap) is damaged");
  trie_.resize(size / 4);
  std::memcpy(trie_.data(), map.data() + 4, size);
  normalized_ = map.substr(4 + size);
  normalized_ += '\0';
}

// The longest key of the table, a piece that is kept, or one character.
SpmNormalizer::Part SpmNormalizer::first_part(std::string_view text) const {
  if (size_t kept = kept_.longest(text)) return {text.substr(0, kept), kept};
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
  }
  if (found == 0) {
    size_t bytes = utf8_sequence(text, 0).bytes;  // keys of the table may end inside a character
    return {text.substr(0, bytes), bytes};
  }
  if (value >= normalized_.size()) value = normalized_.size() - 1;
  return {std::string_view(normalized_.c_str() + value), found};
}

std::string SpmNormalizer::normalize(std::string_view text) const {
  std::string out;
  bool after_space = remove_extra_spaces_, begun = false;
  while (!text.empty()) {
    auto [part, bytes] = first_part(text);
    text.remove_prefix(bytes);
    if (!begun && remove_extra_spaces_ && part == " ") continue;
    if (!std::exchange(begun, true) && dummy_prefix_) out += space_;
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    for (char c : part) c == ' ' ? out.append(space_) : out.append(1, c);
    if (!part.empty()) after_space = part.ends_with(' ');
    after_space = after_space && remove_extra_spaces_;
  }
  while (remove_extra_spaces_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
  return out;
}

}  // namespace neox
