#include "tokenizer/spm_normalizer.h"

#include <utility>

#include "base/utf8.h"
#include "tokenizer/marked_words.h"

namespace neox {

SpmNormalizer::SpmNormalizer(const SpmModel& model, const PieceTrie& kept)
    : kept_(kept),
      dummy_prefix_(model.dummy_prefix),
      remove_extra_spaces_(model.remove_extra_spaces),
      space_(model.escape_spaces ? kSpmSpace : " "),
      charsmap_(model.charsmap, model.name) {}

// The longest key of the table, a piece that is kept, or one character.
SpmNormalizer::Part SpmNormalizer::first_part(std::string_view text) const {
  if (size_t kept = kept_.longest(text)) return {text.substr(0, kept), kept};
  if (auto found = charsmap_.longest(text)) return {found->made, found->bytes};
  size_t bytes = utf8_sequence(text, 0).bytes;  // keys of the table may end inside a character
  return {text.substr(0, bytes), bytes};
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
