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
  kQwen35,  // kQwen2 with marks, \p{M}, as letters and not as signs: Qwen 3.5
  // [^\r\n\p{L}\p{N}]?U*L+C?|[^\r\n\p{L}\p{N}]?U+L*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
  // \s*[\r\n]+|\s+(?!\S)|\s+   with U for [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], L for
  // [\p{Ll}\p{Lm}\p{Lo}\p{M}] and C for (?i:'s|'t|'re|'ve|'m|'ll|'d)
  kO200k,   // tiktoken's o200k_base, gpt-oss, LLaMA 4
  kTekken,  // the same without C and with \p{N} for \p{N}{1,3}: Mistral since Nemo
  kWhole    // all of the text
};

// Whether signs take slashes with them that stand behind a line end.
inline bool takes_slashes(Words words) { return words == Words::kO200k || words == Words::kTekken; }

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
  size_t contraction_bytes(size_t at) const;
  size_t end_of_spaces() const;
  size_t end_of_gpt2() const;
  size_t end_of_cl100k() const;
  size_t end_of_o200k() const;
  size_t end_of_upper(size_t at) const;
  size_t end_of_lower(size_t at) const;
  size_t end_of_signs(const Char& head) const;

  std::string_view text_;
  Words words_;
  const unicode::Properties& properties_;
  size_t at_ = 0;
};

}  // namespace neox
