#include "tokenizer/character_bpe.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
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

// The symbols of a word so far, and the unknown characters behind them.
struct CharacterBpe::Chain {
  std::vector<Symbol> symbols;
  std::string_view unknown;

  void end_unknown(int32_t id) {
    if (!unknown.empty()) add_symbol(symbols, std::exchange(unknown, {}), id);
  }
};

CharacterBpe::CharacterBpe(const std::vector<std::string>& tokens,
                           const std::vector<BpeMerge>& merges, CharacterBpeRules rules)
    : rules_(std::move(rules)), number_(new_words_number()) {
  bytes_.fill(-1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto id = static_cast<int32_t>(i);
    if (int byte = byte_of_token(tokens[i]); byte >= 0 && in_capitals(tokens[i]))
      bytes_[static_cast<size_t>(byte)] = id;
    if (tokens[i] == rules_.unknown) unknown_ = id;
    if (rules_.whole_words) words_[tokens[i]] = id;
    for (bool inside : {false, true})
      for (bool last : {false, true})
        if (std::string_view one = character_of(tokens[i], inside, last); !one.empty())
          characters_[inside][last].emplace(bytes_of(one), id);
  }
  check_io(rules_.unknown.empty() || unknown_ >= 0, "the vocabulary has no token \"",
           rules_.unknown, "\", which is to stand for what is unknown (unk_token)");
  constexpr size_t kMost = 1 << 24;  // ranks that a float holds
  check_io(merges.size() <= kMost, "there are ", merges.size(), " merges, more than ", kMost);
  for (size_t rank = 0; rank < merges.size(); ++rank)
    merges_[pair_of(merges[rank].left, merges[rank].right)] = {-static_cast<float>(rank),
                                                               merges[rank].whole};
  by_words_ = stand_alone(tokens, merges);
}

// What a token stands for at a place of a word, if that is one character; else "".
std::string_view CharacterBpe::character_of(std::string_view token, bool inside, bool last) const {
  std::string_view before, behind;
  if (inside) before = rules_.prefix;
  if (last) behind = rules_.suffix;
  if (token.size() <= before.size() + behind.size()) return "";
  if (!token.starts_with(before) || !token.ends_with(behind)) return "";
  token.remove_prefix(before.size());
  token.remove_suffix(behind.size());
  return utf8_sequence(token, 0).bytes == token.size() ? token : "";
}

bool CharacterBpe::has_all_bytes() const { return std::ranges::find(bytes_, -1) == bytes_.end(); }

// Whether the ids of a text are those of its words.
bool CharacterBpe::stand_alone(const std::vector<std::string>& tokens,
                               const std::vector<BpeMerge>& merges) const {
  if (!rules_.prefix.empty() || !rules_.suffix.empty() || rules_.whole_words) return false;
  if (rules_.byte_fallback && !has_all_bytes()) return false;
  bool knows_mark = rules_.byte_fallback || characters_[0][0].contains(bytes_of(kSpmSpace));
  if (rules_.fuses_unknown && !knows_mark) return false;
  return std::ranges::none_of(merges, [&](const BpeMerge& merge) {
    return spans_words(tokens[static_cast<size_t>(merge.whole)]);
  });
}

// Its bytes come in front of what is unknown before it, as in `tokenizers`.
void CharacterBpe::add_unknown(std::string_view character, Chain& chain) const {
  auto id_of = [this](char c) { return bytes_[static_cast<uint8_t>(c)]; };
  auto has_token = [&](char c) { return id_of(c) >= 0; };
  if (rules_.byte_fallback && std::ranges::all_of(character, has_token)) {
    for (size_t i = 0; i < character.size(); ++i)
      add_symbol(chain.symbols, character.substr(i, 1), id_of(character[i]));
    return;
  }
  if (unknown_ < 0) return;
  if (!rules_.fuses_unknown) chain.end_unknown(unknown_);
  const char* begin = chain.unknown.empty() ? character.data() : chain.unknown.data();
  chain.unknown = {begin, chain.unknown.size() + character.size()};
}

void CharacterBpe::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (rules_.whole_words)
    if (auto whole = words_.find(std::string(word)); whole != words_.end())
      return ids.push_back(whole->second);
  Chain chain;
  for (size_t at = 0, bytes; at < word.size(); at += bytes) {
    bytes = utf8_sequence(word, at).bytes;
    std::string_view character = word.substr(at, bytes);
    const Characters& characters = characters_[at > 0][at + bytes == word.size()];
    auto found = characters.find(bytes_of(character));
    if (found == characters.end()) {
      add_unknown(character, chain);
      continue;
    }
    chain.end_unknown(unknown_);
    add_symbol(chain.symbols, character, found->second);
  }
  chain.end_unknown(unknown_);
  join_symbols(chain.symbols, [this](const Symbol& a, const Symbol& b) -> std::optional<Joined> {
    auto found = merges_.find(pair_of(a.id, b.id));
    if (found == merges_.end()) return std::nullopt;
    return Joined{found->second.urgency, found->second.whole};
  });
  for (const Symbol& symbol : chain.symbols)
    if (!symbol.text.empty()) ids.push_back(symbol.id);
}

void CharacterBpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  auto word = [this](std::string_view text, auto& out) { encode_word(text, out); };
  by_words_ ? encode_marked_words(number_, piece, ids, word)
            : encode_remembered(number_, piece, ids, word);
}

std::string CharacterBpe::loss() const {
  if (rules_.byte_fallback && has_all_bytes()) return "";
  if (unknown_ < 0) return "is lost";
  return concat("becomes ", rules_.unknown, " (", unknown_, ")");
}

}  // namespace neox
