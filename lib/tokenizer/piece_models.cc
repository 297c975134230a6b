#include "tokenizer/piece_models.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/marked_words.h"

namespace neox {
namespace {

// Those that begin with the prefix, without it.
PieceTrie trie_of(const std::vector<std::string>& tokens, std::string_view prefix = "") {
  std::vector<std::pair<std::string, int32_t>> pieces;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i].starts_with(prefix) && tokens[i].size() > prefix.size())
      pieces.emplace_back(tokens[i].substr(prefix.size()), static_cast<int32_t>(i));
  return PieceTrie(std::move(pieces));
}

}  // namespace

UnigramModel::UnigramModel(const std::vector<std::string>& tokens, std::vector<double> scores,
                           Rules rules)
    : rules_(rules),
      scores_(std::move(scores)),
      least_(std::numeric_limits<double>::infinity()),
      trie_(trie_of(tokens)),
      bytes_(tokens),
      number_(new_words_number()) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    least_ = std::min(least_, scores_[i]);
    ids_[tokens[i]] = static_cast<int32_t>(i);
  }
  if (rules_.unknown >= 0) unknown_text_ = tokens[static_cast<size_t>(rules_.unknown)];
}

void UnigramModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  encode_remembered(number_, piece, ids,
                    [this](std::string_view text, auto& out) { encode_piece(text, out); });
}

void UnigramModel::add(std::string_view part, std::vector<int32_t>& ids) const {
  if (auto found = ids_.find(std::string(part)); found != ids_.end())
    return ids.push_back(found->second);
  if (rules_.byte_fallback && bytes_.spell(part)) {
    for (char c : part) ids.push_back(bytes_.id(c));
    return;
  }
  ids.push_back(rules_.unknown);
}

// Viterbi's algorithm over the places between bytes. Neighbours that are unknown become one.
void UnigramModel::encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  constexpr double kUnknownPenalty = 10;
  struct Place {
    int32_t id = -1;
    double score = 0;
    int64_t from = -1;
  };
  std::vector<Place> best(piece.size() + 1);
  auto offer = [&](size_t from, size_t to, double score, int32_t id) {
    double candidate = score + best[from].score;
    if (best[to].from >= 0 && !(candidate > best[to].score)) return;
    best[to] = {id, candidate, static_cast<int64_t>(from)};
  };
  for (size_t at = 0, bytes; at < piece.size(); at += bytes) {
    bytes = utf8_sequence(piece, at).bytes;
    bool single = false;
    trie_.each_prefix(piece.substr(at), [&](size_t length, int32_t id) {
      offer(at, at + length, scores_[static_cast<size_t>(id)], id);
      single = single || length == bytes;
    });
    if (single) continue;
    check_io(rules_.unknown >= 0, "the tokenizer has no piece for \"", piece.substr(at, bytes),
             "\", nor one for what is unknown (unk_id)");
    offer(at, at + bytes, least_ - kUnknownPenalty, rules_.unknown);
  }
  struct Part {
    bool unknown;
    std::string_view text;
  };
  std::vector<Part> parts;  // from the end
  for (size_t to = piece.size(); to > 0;) {
    auto from = static_cast<size_t>(best[to].from);
    bool unknown = best[to].id == rules_.unknown;
    if (unknown && !parts.empty() && parts.back().unknown)
      parts.back().text = piece.substr(from, to - from + parts.back().text.size());
    else
      parts.push_back({unknown, piece.substr(from, to - from)});
    to = from;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) add(part->text, ids);
}

std::string UnigramModel::loss() const {
  if (rules_.byte_fallback && bytes_.spell_all()) return "";
  if (rules_.unknown < 0) return "is an error";
  return becomes(unknown_text_, rules_.unknown);
}

VocabularyModel::VocabularyModel(const std::vector<std::string>& tokens, const std::string& unknown)
    : tokens_(tokens) {
  for (size_t i = 0; i < tokens_.size(); ++i) ids_[tokens_[i]] = static_cast<int32_t>(i);
  auto found = ids_.find(unknown);
  check_io(found != ids_.end(), "the vocabulary has no token \"", unknown,
           "\", which is to stand for what is unknown (unk_token)");
  unknown_ = found->second;
}

std::string VocabularyModel::loss() const {
  return becomes(tokens_[static_cast<size_t>(unknown_)], unknown_);
}

void WordLevelModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  auto found = ids_.find(piece);
  ids.push_back(found == ids_.end() ? unknown_ : found->second);
}

WordPieceModel::WordPieceModel(const std::vector<std::string>& tokens, const std::string& unknown,
                               Rules rules)
    : VocabularyModel(tokens, unknown),
      rules_(std::move(rules)),
      first_(trie_of(tokens_)),
      inside_(trie_of(tokens_, rules_.prefix)),
      number_(new_words_number()) {}

void WordPieceModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  encode_remembered(number_, piece, ids,
                    [this](std::string_view word, auto& out) { encode_word(word, out); });
}

// A word with a part that no piece fits is unknown as a whole.
void WordPieceModel::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<int32_t> pieces;
  bool known = count_characters(word) <= rules_.most_characters;
  for (size_t at = 0, bytes; known && at < word.size(); at += bytes) {
    bytes = 0;
    int32_t piece = unknown_;
    (at == 0 ? first_ : inside_).each_prefix(word.substr(at), [&](size_t length, int32_t id) {
      bytes = length, piece = id;
    });
    known = bytes > 0;
    pieces.push_back(piece);
  }
  if (!known) pieces.assign(1, unknown_);
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

}  // namespace neox
