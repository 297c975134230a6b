#include "tokenizer/spm.h"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <charconv>
#include <map>
#include <queue>

#include "base/error.h"
#include "base/utf8.h"

namespace neox {
namespace {

constexpr float kUnknownPenalty = 10;
constexpr size_t kLongestKept = 64, kMostKept = 1 << 16;  // of words that a thread remembers

std::atomic<uint64_t> models{0};

// The words of the model that a thread used last.
struct Memory {
  uint64_t model = 0;
  std::unordered_map<std::string, std::vector<int32_t>> words;
};

}  // namespace

Spm::Spm(SpmModel model)
    : model_(std::move(model)),
      user_defined_(trie_of(true)),
      all_(trie_of(false)),
      normalizer_(model_, user_defined_),
      by_words_(words_stand_alone()),
      number_(++models) {
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
  least_ = FLT_MAX, greatest_ = FLT_MIN;  // FLT_MIN as in SentencePiece
  for (size_t i = 0; i < model_.pieces.size(); ++i) {
    const SpmPiece& p = model_.pieces[i];
    auto id = static_cast<int32_t>(i);
    bool fresh = (p.in_texts() ? found_ : reserved_).emplace(p.text, id).second;
    check_usage(fresh && !p.text.empty(), model_.name, ": piece ", i, " '", p.text,
                p.text.empty() ? "' is empty" : "' stands there twice");
    if (p.type == SpmPiece::kUnknown) unknown_ = id;
    if (p.type == SpmPiece::kNormal)
      least_ = std::min(least_, p.score), greatest_ = std::max(greatest_, p.score);
    unsigned byte = 256;  // of "<0x0A>"
    if (p.type == SpmPiece::kByte && p.text.size() == 6)
      std::from_chars(p.text.data() + 3, p.text.data() + 5, byte, 16);
    if (byte < 256) bytes_[byte] = id;
  }
  check_usage(unknown_ >= 0, model_.name, " has no piece for what is unknown");
  bool all = std::ranges::find(bytes_, -1) == bytes_.end();
  check_usage(!model_.byte_fallback || all, model_.name, " lacks pieces for some bytes");
}

// Whether no piece reaches over the beginning of a word, so that words are encoded one by one.
bool Spm::words_stand_alone() const {
  if (model_.kind != SpmModel::kBpe || !model_.escape_spaces) return false;
  return std::ranges::none_of(model_.pieces, [](const SpmPiece& p) {
    for (size_t at = p.text.find(kSpmSpace); at != p.text.npos; at = p.text.find(kSpmSpace, at + 1))
      if (at > 0 && !std::string_view(p.text).substr(0, at).ends_with(kSpmSpace)) return true;
    return false;
  });
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
    encode_words(normalized, ids);
  else
    encode_bpe(normalized, ids);
  if (model_.byte_fallback) return;
  auto from = ids.begin() + static_cast<std::ptrdiff_t>(begin);  // a run of what is unknown is one
  auto both = [this](int32_t a, int32_t b) { return a == b && a == unknown_; };
  ids.erase(std::unique(from, ids.end(), both), ids.end());
}

void Spm::encode_words(std::string_view text, Ids& ids) const {
  thread_local Memory memory;
  if (memory.model != number_) memory.words.clear(), memory.model = number_;
  std::string key;
  while (!text.empty()) {
    size_t begun = 0;  // behind the spaces of this word
    while (text.substr(begun).starts_with(kSpmSpace)) begun += kSpmSpace.size();
    size_t end = std::min(text.find(kSpmSpace, begun), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(end);
    if (word.size() > kLongestKept) {
      encode_bpe(word, ids);
      continue;
    }
    key.assign(word);
    auto found = memory.words.find(key);
    if (found == memory.words.end()) {
      if (memory.words.size() >= kMostKept) memory.words.clear();
      found = memory.words.emplace(key, Ids()).first;
      encode_bpe(word, found->second);
    }
    ids.insert(ids.end(), found->second.begin(), found->second.end());
  }
}

// The symbols of a text, whose best neighbours are joined.
struct Spm::Word {
  struct Symbol {
    std::string_view text;  // empty: a part of another one now
    int previous, next;
    bool whole;  // a user-defined piece
  };
  struct Pair {
    float score;
    int left, right;
    size_t bytes;
    bool operator<(const Pair& other) const {  // the less urgent one
      return score < other.score || (score == other.score && left > other.left);
    }
  };

  void propose(const Spm& spm, int left, int right) {
    if (left < 0 || right < 0) return;
    const Symbol &a = symbols[static_cast<size_t>(left)], &b = symbols[static_cast<size_t>(right)];
    if (a.whole || b.whole) return;
    std::string_view joined(a.text.data(), a.text.size() + b.text.size());
    auto found = spm.found_.find(joined);
    if (found == spm.found_.end()) return;
    const SpmPiece& piece = spm.piece(found->second);
    pairs.push({piece.score, left, right, joined.size()});
    if (piece.type == SpmPiece::kUnused) parts[joined] = {a.text, b.text};
  }
  void join(const Spm& spm) {
    while (!pairs.empty()) {
      Pair top = pairs.top();
      pairs.pop();
      Symbol &a = symbols[static_cast<size_t>(top.left)],
             &b = symbols[static_cast<size_t>(top.right)];
      if (a.text.empty() || b.text.empty() || a.text.size() + b.text.size() != top.bytes) continue;
      a.text = std::string_view(a.text.data(), top.bytes);
      b.text = {};
      a.next = b.next;
      if (b.next >= 0) symbols[static_cast<size_t>(b.next)].previous = top.left;
      propose(spm, a.previous, top.left);
      propose(spm, top.left, a.next);
    }
  }
  // Pieces that are only steps to others are taken apart again.
  void write(const Spm& spm, std::string_view text, Ids& ids) const {
    int32_t id = spm.id_of(text);
    auto made = parts.find(text);
    if (spm.piece(id).type != SpmPiece::kUnused || made == parts.end())
      return spm.add(id, text, ids);
    write(spm, made->second.first, ids);
    write(spm, made->second.second, ids);
  }

  std::vector<Symbol> symbols;
  std::priority_queue<Pair> pairs;
  std::map<std::string_view, std::pair<std::string_view, std::string_view>> parts;
};

void Spm::encode_bpe(std::string_view text, Ids& ids) const {
  Word word;
  for (size_t at = 0; at < text.size();) {
    size_t whole = user_defined_.longest(text.substr(at));
    size_t bytes = whole ? whole : utf8_sequence(text, at).bytes;
    int i = static_cast<int>(word.symbols.size());
    word.symbols.push_back({text.substr(at, bytes), i - 1, i + 1, whole > 0});
    at += bytes;
  }
  if (word.symbols.empty()) return;
  word.symbols.back().next = -1;
  for (int i = 1; i < static_cast<int>(word.symbols.size()); ++i) word.propose(*this, i - 1, i);
  word.join(*this);
  for (int i = 0; i >= 0; i = word.symbols[static_cast<size_t>(i)].next)
    word.write(*this, word.symbols[static_cast<size_t>(i)].text, ids);
}

// Viterbi's algorithm over the places between bytes; sums are rounded as SentencePiece's are.
void Spm::encode_unigram(std::string_view text, Ids& ids) const {
  struct Place {
    int32_t id = -1;
    float score = 0;
    int64_t from = -1;
  };
  std::vector<Place> best(text.size() + 1);
  auto offer = [&](size_t from, size_t to, float score, int32_t id) {
    float candidate = score + best[from].score;
    if (best[to].from >= 0 && !(candidate > best[to].score)) return;
    best[to] = {id, candidate, static_cast<int64_t>(from)};
  };
  for (size_t at = 0, bytes; at < text.size(); at += bytes) {
    bytes = utf8_sequence(text, at).bytes;
    bool single = false;
    all_.each_prefix(text.substr(at), [&](size_t length, int32_t id) {
      const SpmPiece& p = piece(id);
      if (p.type == SpmPiece::kUnused) return;
      single = single || length == bytes;
      bool own = p.type == SpmPiece::kUserDefined;
      offer(at, at + length, own ? static_cast<float>(length) * greatest_ - 0.1f : p.score, id);
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
  bool space =
      piece(id).text.starts_with(kSpmSpace) && (model_.dummy_prefix || model_.remove_extra_spaces);
  if (space) text.remove_prefix(1);
  return text.empty() && (!space || model_.remove_extra_spaces);
}

std::string Spm::text_of(int32_t id) const {
  const SpmPiece& p = piece(id);
  if (p.type == SpmPiece::kControl) return "";
  if (p.type == SpmPiece::kUnknown) return model_.unknown_text;
  if (p.type == SpmPiece::kByte)
    return std::string(1, static_cast<char>(std::ranges::find(bytes_, id) - bytes_.begin()));
  std::string text = p.text;
  for (size_t at = 0; (at = text.find(kSpmSpace, at)) != text.npos; ++at)
    text.replace(at, kSpmSpace.size(), " ");
  return text;
}

}  // namespace neox
