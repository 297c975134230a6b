// GPT-2's splitter: the pieces that the regular expression
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// finds in a text (Radford et al. 2019, encoder.py), with the classes of unicode_tables.h. The
// pieces cover the text. Takes time linear in the text.
#pragma once
#include <string_view>

#include "tokenizer/unicode.h"

namespace neox {

class WordSplitter {
 public:
  // text must be valid UTF-8 and outlive the splitter.
  explicit WordSplitter(std::string_view text)
      : text_(text), properties_(unicode::Properties::get()) {}
  bool done() const { return at_ == text_.size(); }
  // The next piece, never empty; only while !done().
  std::string_view next();

 private:
  struct Char {
    unicode::Class category;
    size_t bytes;
  };
  Char read(size_t at) const;
  size_t contraction_bytes() const;
  size_t end_of_spaces() const;

  std::string_view text_;
  const unicode::Properties& properties_;
  size_t at_ = 0;
};

}  // namespace neox
