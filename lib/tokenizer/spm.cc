#include "tokenizer/spm.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_tokens.h"
#include "tokenizer/marked_words.h"
#include "tokenizer/symbols.h"

namespace neox {
namespace {

constexpr float kUnknownPenalty = 10;
constexpr float kMostOfSum = 100000;
constexpr int32_t kWhole = -2, kOpen = -1;  // of symbols: a user-defined piece, any other

}  // namespace

Spm::Spm(SpmModel model)
    : model_(std::move(model)),
      user_defined_(trie_of(true)),
      all_(trie_of(false)),
      normalizer_(model_, user_defined_),
      by_words_(words_stand_alone()),
      number_(new_words_number()) {
  read_pieces();
}

PieceTrie Spm::trie_of(bool user_defined_only) const {
  std::vector<std::pair<std::string, int32_t>> chosen;
  if (!user_defined_only && model_.kind != SpmModel::kUnigram) return PieceTrie({});
  for (size_t id = 0; id < model_.pieces.size(); ++id) {
    const SpmPiece& p = model_.pieces[id];
    if (user_defined_only ? p.type == SpmPiece::kUserDefined : p.in_texts())
      chosen.emplace_back(p.text, static_cast<int32_t>(id));
  }
  return PieceTrie(std::move(chosen));
}

void Spm::read_pieces() {
  bytes_.assign(256, -1);
  least_ = FLT_MAX;
  for (size_t i = 0; i < model_.pieces.size(); ++i) {
    const SpmPiece& p = model_.pieces[i];
    auto id = static_cast<int32_t>(i);
    check_usage(is_utf8(p.text), model_.name, ": piece ", i, " is not UTF-8");
    bool fresh = (p.in_texts() ? found_ : reserved_).emplace(p.text, id).second;
    check_usage(fresh && !p.text.empty(), model_.name, ": piece ", i, " '", p.text,
                p.text.empty() ? "' is empty" : "' stands there twice");
    if (p.type == SpmPiece::kUnknown) unknown_ = id;
    if (p.type == SpmPiece::kNormal) least_ = std::min(least_, p.score);
    int byte = p.type == SpmPiece::kByte ? byte_of_token(p.text) : -1;
    if (byte >= 0) bytes_[static_cast<size_t>(byte)] = id;
  }
  check_usage(unknown_ >= 0, model_.name, " has no piece for what is unknown");
  bool all = std::ranges::find(bytes_, -1) == bytes_.end();
  check_usage(!model_.byte_fallback || all, model_.name, " lacks pieces for some bytes");
}

// Whether no piece reaches over the beginning of a word, so that words are encoded one by one.
bool Spm::words_stand_alone() const {
  if (model_.kind != SpmModel::kBpe || !model_.escape_spaces) return false;
  return std::ranges::none_of(model_.pieces, [](const SpmPiece& p) { return spans_words(p.text); });
}

int32_t Spm::id_of(std::string_view text) const {
  if (auto at = reserved_.find(text); at != reserved_.end()) return at->second;
  auto at = found_.find(text);
  return at == found_.end() ? unknown_ : at->second;
}

void Spm::add(int32_t id, std::string_view text, Ids& ids) const {
  if (id != unknown_ || !model_.byte_fallback) return ids.push_back(id);
  for (char c : text) ids.push_back(bytes_[static_cast<uint8_t>(c)]);
}

void Spm::encode(std::string_view text, Ids& ids) const {
  std::string normalized = normalizer_.normalize(text);
  size_t begin = ids.size();
  if (model_.kind == SpmModel::kUnigram)
    encode_unigram(normalized, ids);
  else if (by_words_)
    encode_marked_words(number_, normalized, ids,
                        [this](std::string_view word, Ids& out) { encode_bpe(word, out); });
  else
    encode_bpe(normalized, ids);
  if (model_.byte_fallback) return;
  auto from = ids.begin() + static_cast<std::ptrdiff_t>(begin);  // a run of what is unknown is one
  auto both = [this](int32_t a, int32_t b) { return a == b && a == unknown_; };
  ids.erase(std::unique(from, ids.end(), both), ids.end());
}

// Pieces that are only steps to others are taken apart again.
void Spm::encode_bpe(std::string_view text, Ids& ids) const {
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < text.size();) {
    size_t whole = user_defined_.longest(text.substr(at));
    size_t bytes = whole ? whole : utf8_sequence(text, at).bytes;
    add_symbol(symbols, text.substr(at, bytes), whole ? kWhole : kOpen);
    at += bytes;
  }
  std::map<std::string_view, std::pair<std::string_view, std::string_view>> parts;
  join_symbols(symbols, [&](const Symbol& a, const Symbol& b) -> std::optional<Joined> {
    if (a.id == kWhole || b.id == kWhole) return std::nullopt;
    std::string_view joined(a.text.data(), a.text.size() + b.text.size());
    auto found = found_.find(joined);
    if (found == found_.end()) return std::nullopt;
    if (piece(found->second).type == SpmPiece::kUnused) parts[joined] = {a.text, b.text};
    return Joined{piece(found->second).score, kOpen};
  });
  auto write = [&](auto& again, std::string_view of) -> void {
    int32_t id = id_of(of);
    auto made = parts.find(of);
    if (piece(id).type != SpmPiece::kUnused || made == parts.end()) return add(id, of, ids);
    again(again, made->second.first);
    again(again, made->second.second);
  };
  for (const Symbol& symbol : symbols)
    if (!symbol.text.empty()) write(write, symbol.text);
}

// Viterbi's algorithm over the places between bytes; sums are rounded as those of SentencePiece
// 0.2.3, which begin anew where they become large.
void Spm::encode_unigram(std::string_view text, Ids& ids) const {
  struct Place {
    int32_t id = -1;
    float score = 0;
    int64_t from = -1;
  };
  std::vector<Place> best(text.size() + 1);
  size_t reached = 0;
  auto offer = [&](size_t from, size_t to, float score, int32_t id) {
    float candidate = score + best[from].score;
    if (best[to].from >= 0 && !(candidate > best[to].score)) return;
    best[to] = {id, candidate, static_cast<int64_t>(from)};
    reached = std::max(reached, to);
  };
  for (size_t at = 0, bytes; at < text.size(); at += bytes) {
    bytes = utf8_sequence(text, at).bytes;
    if (float sum = best[at].score; std::abs(sum) > kMostOfSum)
      for (size_t i = at; i <= reached; ++i)
        if (i == at || best[i].from >= 0) best[i].score -= sum;
    bool single = false;
    all_.each_prefix(text.substr(at), [&](size_t length, int32_t id) {
      const SpmPiece& p = piece(id);
      if (p.type == SpmPiece::kUnused) return;
      single = single || length == bytes;
      bool own = p.type == SpmPiece::kUserDefined;
      auto extra = static_cast<float>(0.1 * static_cast<double>(length - 1));
      offer(at, at + length, own ? extra : p.score, id);
    });
    if (!single) offer(at, at + bytes, least_ - kUnknownPenalty, unknown_);
  }
  std::vector<std::pair<int32_t, std::string_view>> path;
  for (size_t to = text.size(); to > 0;) {
    auto from = static_cast<size_t>(best[to].from);
    path.emplace_back(best[to].id, text.substr(from, to - from));
    to = from;
  }
  for (auto step = path.rbegin(); step != path.rend(); ++step) add(step->first, step->second, ids);
}

bool Spm::strip(int32_t id, std::string_view& text) const {
  const SpmPiece& p = piece(id);
  bool space = p.in_texts() && p.text.starts_with(kSpmSpace) &&
               (model_.dummy_prefix || model_.remove_extra_spaces);
  if (space) text.remove_prefix(1);
  return text.empty() && (!space || model_.remove_extra_spaces);
}

std::string Spm::text_of(int32_t id) const {
  const SpmPiece& p = piece(id);
  if (p.type == SpmPiece::kControl) return "";
  if (p.type == SpmPiece::kUnknown) return model_.unknown_text;
  if (p.type == SpmPiece::kByte)
    return std::string(1, static_cast<char>(std::ranges::find(bytes_, id) - bytes_.begin()));
  return without_marks(p.text);
}

}  // namespace neox
