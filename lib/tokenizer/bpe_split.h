// The words of a text: the pieces that a regular expression finds in it, with the classes of
// unicode_tables.h. They cover the text. Takes time linear in the text.
#pragma once
#include <string_view>

#include "tokenizer/unicode.h"

namespace neox {

enum class Words {
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kGpt2,  // Radford et al. 2019, encoder.py
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
  // \s*[\r\n]+|\s+(?!\S)|\s+
  kCl100k,  // tiktoken's cl100k_base, LLaMA 3, OLMo 2
  kQwen2,   // the same with \p{N} for \p{N}{1,3}
  kWhole    // all of the text
};

class WordSplitter {
 public:
  // text must be valid UTF-8 and outlive the splitter.
  explicit WordSplitter(std::string_view text, Words words = Words::kGpt2)
      : text_(text), words_(words), properties_(unicode::Properties::get()) {}
  bool done() const { return at_ == text_.size(); }
  // The next piece, never empty; only while !done().
  std::string_view next();

 private:
  struct Char {
    unicode::Class category;
    size_t bytes;
  };
  Char read(size_t at) const;
  bool is(size_t at, unicode::Class category) const;
  size_t end_of(unicode::Class category, size_t at, size_t most) const;
  size_t end_of_lines(size_t at) const;
  size_t contraction_bytes() const;
  size_t end_of_spaces() const;
  size_t end_of_gpt2() const;
  size_t end_of_cl100k() const;

  std::string_view text_;
  Words words_;
  const unicode::Properties& properties_;
  size_t at_ = 0;
};

}  // namespace neox
