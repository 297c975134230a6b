#include "tokenizer/character_bpe.h"

#include <algorithm>
#include <optional>
#include <utility>

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

}  // namespace

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
    : rules_(std::move(rules)), bytes_(tokens), number_(new_words_number()) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto id = static_cast<int32_t>(i);
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

// Whether the ids of a text are those of its words.
bool CharacterBpe::stand_alone(const std::vector<std::string>& tokens,
                               const std::vector<BpeMerge>& merges) const {
  if (!rules_.prefix.empty() || !rules_.suffix.empty() || rules_.whole_words) return false;
  if (rules_.byte_fallback && !bytes_.spell_all()) return false;
  bool knows_mark = rules_.byte_fallback || characters_[0][0].contains(bytes_of(kSpmSpace));
  // What is lost between words leaves them neighbours, as what is fused does.
  bool joins_words = rules_.fuses_unknown || unknown_ < 0;
  if (joins_words && !knows_mark) return false;
  return std::ranges::none_of(merges, [&](const BpeMerge& merge) {
    return spans_words(tokens[static_cast<size_t>(merge.whole)]);
  });
}

// Its bytes come in front of what is unknown before it, as in `tokenizers`.
void CharacterBpe::add_unknown(std::string_view character, Chain& chain) const {
  if (rules_.byte_fallback && bytes_.spell(character)) {
    for (size_t i = 0; i < character.size(); ++i)
      add_symbol(chain.symbols, character.substr(i, 1), bytes_.id(character[i]));
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
  if (rules_.byte_fallback && bytes_.spell_all()) return "";
  if (unknown_ < 0) return "is lost";
  return becomes(rules_.unknown, unknown_);
}

}  // namespace neox
