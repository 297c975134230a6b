#include "tokenizer/normalizer.h"

#include "tokenizer/bpe.h"

namespace neox {
namespace {

using NormalizerKind = Normalizer::Kind;

// write(out, code) for each code point.
template <class Write>
std::string_view each_character(std::string_view text, std::string& storage, const Write& write) {
  storage.clear();
  for (size_t at = 0; at < text.size();) {
    auto [code, bytes] = unicode::read(text, at);
    write(storage, code);
    at += bytes;
  }
  return storage;
}

template <class Drop>
std::string_view without(std::string_view text, std::string& storage, const Drop& drop) {
  return each_character(text, storage, [&](std::string& out, char32_t code) {
    if (!drop(code)) unicode::append(out, code);
  });
}

void write_clean(std::string& out, char32_t code) {
  if (!unicode::is_control(code)) unicode::append(out, unicode::is_space(code) ? U' ' : code);
}

// The blocks of CJK ideograms that BERT's tokenizer knows.
bool is_ideogram(char32_t c) {
  auto in = [c](char32_t first, char32_t last) { return first <= c && c <= last; };
  return in(0x4E00, 0x9FFF) || in(0x3400, 0x4DBF) || in(0x20000, 0x2A6DF) || in(0x2A700, 0x2B73F) ||
         in(0x2B740, 0x2B81F) || in(0x2B920, 0x2CEAF) || in(0xF900, 0xFAFF) || in(0x2F800, 0x2FA1F);
}

void write_spaced(std::string& out, char32_t code) {
  bool spaced = is_ideogram(code);
  if (spaced) out += ' ';
  unicode::append(out, code);
  if (spaced) out += ' ';
}

// The rules of SentencePiece's nmt for controls and spaces.
void write_nmt(std::string& out, char32_t c) {
  bool blank = c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
               (0x200B <= c && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
               c == 0xFEFF || c == 0xFFFD;
  bool dropped = (0x01 <= c && c <= 0x08) || c == 0x0B || (0x0E <= c && c <= 0x1F) || c == 0x7F ||
                 c == 0x8F || c == 0x9F;
  if (!dropped) unicode::append(out, blank ? U' ' : c);
}

std::string_view apply(const Normalizer& step, std::string_view text, bool begins,
                       std::string& storage) {
  switch (step.kind) {
    case NormalizerKind::kForm:
      return unicode::in_form(text, step.form, storage);
    case NormalizerKind::kReplace:
      return step.pattern.replaced(text, step.content, storage);
    case NormalizerKind::kPrepend:
      return begins && !text.empty() ? storage.assign(step.content).append(text) : text;
    case NormalizerKind::kLowercase:
      return each_character(text, storage, unicode::append_lowercase);
    case NormalizerKind::kStripLeft:
      return text.substr(unicode::skip_spaces(text, 0));
    case NormalizerKind::kStripRight:
      return text.substr(0, unicode::skip_spaces_back(text, text.size()));
    case NormalizerKind::kStripAccents:
      return without(text, storage, unicode::is_accent);
    case NormalizerKind::kDropNonspacing:
      return without(text, storage, unicode::is_nonspacing);
    case NormalizerKind::kCleanControls:
      return each_character(text, storage, write_clean);
    case NormalizerKind::kSpaceIdeograms:
      return each_character(text, storage, write_spaced);
    case NormalizerKind::kNmt:
      return each_character(text, storage, write_nmt);
    case NormalizerKind::kPrecompiled:
      return storage = step.charsmap->by_graphemes(text);
    case NormalizerKind::kSpellBytes:
      return storage = to_byte_level(text);
  }
  return text;
}

}  // namespace

std::string_view normalize(std::span<const Normalizer> steps, std::string_view text, bool begins,
                           std::string& storage) {
  std::string made;
  for (const Normalizer& step : steps) {
    text = apply(step, text, begins, made);
    if (text.data() != made.data()) continue;
    storage.swap(made);
    text = storage;
  }
  return text;
}

}  // namespace neox
