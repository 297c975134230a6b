#include "tokenizer/fallback_bpe.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/marked_words.h"
#include "tokenizer/symbols.h"

namespace neox {
namespace {

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

uint32_t bytes_of(std::string_view character) {
  uint32_t bytes = 0;
  for (char c : character) bytes = bytes << 8 | static_cast<uint8_t>(c);
  return bytes;
}

bool in_capitals(std::string_view token) {
  return std::ranges::none_of(token, [](char c) { return 'a' <= c && c <= 'f'; });
}

}  // namespace

int byte_of_token(std::string_view token) {
  unsigned byte = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const char* end = token.data() + 5;
  auto [at, error] = std::from_chars(token.data() + 3, end, byte, 16);
  return error == std::errc() && at == end ? static_cast<int>(byte) : -1;
}

FallbackBpe::FallbackBpe(const std::vector<std::string>& tokens,
                         const std::vector<BpeMerge>& merges)
    : number_(new_words_number()) {
  bytes_.fill(-1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto id = static_cast<int32_t>(i);
    if (int byte = byte_of_token(tokens[i]); byte >= 0 && in_capitals(tokens[i]))
      bytes_[static_cast<size_t>(byte)] = id;
    if (!tokens[i].empty() && utf8_sequence(tokens[i], 0).bytes == tokens[i].size())
      characters_.emplace(bytes_of(tokens[i]), id);
  }
  auto missing = std::ranges::find(bytes_, -1);
  check_io(missing == bytes_.end(), "byte_fallback needs a token for each byte; there is none for ",
           missing - bytes_.begin());
  constexpr size_t kMost = 1 << 24;  // ranks that a float holds
  check_io(merges.size() <= kMost, "there are ", merges.size(), " merges, more than ", kMost);
  for (size_t rank = 0; rank < merges.size(); ++rank)
    merges_[pair_of(merges[rank].left, merges[rank].right)] = {-static_cast<float>(rank),
                                                               merges[rank].whole};
  by_words_ = std::ranges::none_of(merges, [&](const BpeMerge& merge) {
    return spans_words(tokens[static_cast<size_t>(merge.whole)]);
  });
}

void FallbackBpe::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<Symbol> symbols;
  for (size_t at = 0, bytes; at < word.size(); at += bytes) {
    bytes = utf8_sequence(word, at).bytes;
    std::string_view character = word.substr(at, bytes);
    if (auto found = characters_.find(bytes_of(character)); found != characters_.end()) {
      add_symbol(symbols, character, found->second);
      continue;
    }
    for (size_t i = 0; i < bytes; ++i)
      add_symbol(symbols, character.substr(i, 1), bytes_[static_cast<uint8_t>(character[i])]);
  }
  join_symbols(symbols, [this](const Symbol& a, const Symbol& b) -> std::optional<Joined> {
    auto found = merges_.find(pair_of(a.id, b.id));
    if (found == merges_.end()) return std::nullopt;
    return Joined{found->second.urgency, found->second.whole};
  });
  for (const Symbol& symbol : symbols)
    if (!symbol.text.empty()) ids.push_back(symbol.id);
}

void FallbackBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (!by_words_) return encode_word(text, ids);
  encode_marked_words(number_, text, ids,
                      [this](std::string_view word, auto& out) { encode_word(word, out); });
}

}  // namespace neox
