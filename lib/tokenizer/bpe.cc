#include "tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

constexpr char32_t kSpelled = 0x144;  // one more than the last character that spells a byte

struct ByteSpelling {
  std::array<char32_t, 256> character;
  std::array<int, kSpelled> byte;

  static const ByteSpelling& get() {
    static const ByteSpelling spelling;
    return spelling;
  }

 private:
  // Printable Latin-1 spells itself; the others are spelled by U+0100 and on, in order.
  ByteSpelling() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t b = 0; b < 256; ++b) {
      bool is_printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
      character[b] = is_printable ? b : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};

constexpr uint64_t kEmpty = UINT64_MAX;
constexpr size_t kShortWord = 120;  // up to here trying every pair beats a queue

// By value: of std::min's references compilers choose one and load again.
inline int least(int a, int b) { return a < b ? a : b; }

inline int least_of(const int* values, uint32_t count) {  // a multiple of 4, not 0
  int even = values[0], odd = values[1];
  for (uint32_t i = 0; i < count; i += 4) {
    even = least(even, least(values[i], values[i + 2]));
    odd = least(odd, least(values[i + 1], values[i + 3]));
  }
  return least(even, odd);
}

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  for (char c : bytes)
    unicode::append(text, ByteSpelling::get().character[static_cast<uint8_t>(c)]);
  return text;
}

bool from_byte_level(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < text.size();) {
    unicode::CodePoint next = unicode::read(text, at);
    int byte = next.value < kSpelled ? ByteSpelling::get().byte[next.value] : -1;
    if (byte < 0) return false;
    bytes.push_back(static_cast<char>(byte));
    at += next.bytes;
  }
  return true;
}

Bpe::Bpe(const std::vector<std::string>& tokens, const std::vector<BpeMerge>& merges,
         WholeWords whole_words, LackingBytes lacking) {
  constexpr size_t kMost = kNoSymbol - 256;
  check_io(merges.size() <= kMost, "the tokenizer has ", merges.size(), " merges; at most ", kMost,
           " are supported");
  std::vector<uint32_t> symbols(tokens.size(), kNoSymbol);  // of each id
  ids_.assign(256 + merges.size(), -1);
  read_tokens(tokens, whole_words, symbols);
  find_lacking_bytes(lacking);
  read_merges(merges, whole_words, symbols);
  byte_ranks_.resize(1 << 16);
  for (uint32_t i = 0; i < byte_ranks_.size(); ++i) byte_ranks_[i] = rank(i & 255, i >> 8);
}

void Bpe::read_tokens(const std::vector<std::string>& tokens, WholeWords whole_words,
                      std::vector<uint32_t>& symbols) {
  std::string bytes;
  if (whole_words != WholeWords::kMergeOnly) words_.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!from_byte_level(tokens[id], bytes)) continue;
    if (whole_words != WholeWords::kMergeOnly) words_[bytes] = static_cast<int32_t>(id);
    if (bytes.size() != 1) continue;
    symbols[id] = static_cast<uint8_t>(bytes[0]);
    ids_[symbols[id]] = static_cast<int32_t>(id);
  }
}

void Bpe::find_lacking_bytes(LackingBytes lacking) {
  for (int b = 0; b < 256; ++b) {
    if (ids_[static_cast<size_t>(b)] >= 0 || !occurs_in_utf8(b)) continue;
    check_io(lacking == LackingBytes::kLost, "the vocabulary has no token for the byte ", b, " (\"",
             to_byte_level(std::string(1, static_cast<char>(b))),
             "\"), so text that holds it would be lost");
    lost_bytes_.push_back(static_cast<uint8_t>(b));
  }
}

void Bpe::read_merges(const std::vector<BpeMerge>& merges, WholeWords whole_words,
                      std::vector<uint32_t>& symbols) {
  bool is_plain = true;
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    uint32_t& symbol = symbols[static_cast<size_t>(merges[rank].whole)];
    if (symbol == kNoSymbol) symbol = 256 + rank;
    is_plain &= symbol == 256 + rank || whole_words == WholeWords::kRanks;
    ids_[256 + rank] = merges[rank].whole;
  }
  std::unordered_map<uint64_t, uint32_t> ranks(merges.size());  // of equal merges the last
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    uint32_t whole = symbols[static_cast<size_t>(merges[rank].whole)];
    if (!is_plain) wholes_.push_back(whole);
    uint64_t left = symbols[static_cast<size_t>(merges[rank].left)];
    uint64_t right = symbols[static_cast<size_t>(merges[rank].right)];
    if (left != kNoSymbol && right != kNoSymbol)  // else nothing ever makes these
      ranks[left << kSymbolBits | right] = whole_words == WholeWords::kRanks ? whole - 256 : rank;
  }
  std::vector<uint64_t> entries;
  entries.reserve(ranks.size());
  for (auto [pair, rank] : ranks) entries.push_back(pair << kRankBits | rank);
  fill(entries);
}

inline Bpe::Slots Bpe::slots_of(uint64_t pair) const {
  uint64_t hash = pair * hash_;
  return {hash >> shift_, (hash ^ hash << 25) >> shift_};
}

// Puts an entry into one of its places; what was there goes to its other one, and so on. False
// where that does not end.
bool Bpe::insert(uint64_t entry) {
  size_t to = slots_of(entry >> kRankBits).first;
  for (int moves = 0; moves < 500; ++moves) {
    std::swap(entry, table_[to]);
    if (entry == kEmpty) return true;
    auto [first, second] = slots_of(entry >> kRankBits);
    to = to == first ? second : first;
  }
  return false;
}

void Bpe::fill(const std::vector<uint64_t>& entries) {
  size_t slots = std::bit_ceil(2 * entries.size() + 2);
  hash_ = 0x9E3779B97F4A7C15u;
  for (int attempt = 1;; ++attempt) {
    shift_ = 64 - std::countr_zero(slots);
    table_.assign(slots, kEmpty);
    if (std::all_of(entries.begin(), entries.end(), [&](uint64_t e) { return insert(e); })) return;
    hash_ = hash_ * 0xD1342543DE82EF95u + 2;  // stays odd
    if (attempt % 8 == 0) slots *= 2;
  }
}

// Of the merge of two symbols; kNever where there is none.
inline uint32_t Bpe::rank(uint32_t left, uint32_t right) const {
  uint64_t pair = static_cast<uint64_t>(left) << kSymbolBits | right;
  auto [first, second] = slots_of(pair);
  uint64_t one = table_[first], other = table_[second];
  uint64_t found = one >> kRankBits == pair ? one : other;
  return found >> kRankBits == pair ? static_cast<uint32_t>(found) & kNever : kNever;
}

int32_t* Bpe::encode(std::string_view word, int32_t* out) const {
  if (!words_.empty())
    if (auto found = words_.find(std::string(word)); found != words_.end()) {
      *out++ = found->second;
      return out;
    }
  if (lost_bytes_.empty()) return merge(word, out);
  std::string left(word);
  std::erase_if(left, [&](char byte) { return ids_[static_cast<uint8_t>(byte)] < 0; });
  return left.empty() ? out : merge(left, out);
}

int32_t* Bpe::merge(std::string_view word, int32_t* out) const {
  if (wholes_.empty() && ids_.size() == 256) {  // there are no merges
    for (char byte : word) *out++ = ids_[static_cast<uint8_t>(byte)];
    return out;
  }
  return word.size() <= kShortWord ? merge_short(word, out) : merge_long(word, out);
}

// Symbols stay in their places, so that a candidate (rank and place in one number) stays right
// until a neighbour changes, and the best one is the least of an array.
int32_t* Bpe::merge_short(std::string_view word, int32_t* out) const {
  constexpr int kPlaceBits = 7, kNoMerge = static_cast<int>(kNever << kPlaceBits);
  static_assert(kShortWord + 4 <= 1 << kPlaceBits);
  uint32_t symbols[kShortWord + 2];  // with one that never merges at both ends
  int best_of[kShortWord + 4];
  uint8_t next[kShortWord + 2], previous[kShortWord + 2];
  uint32_t n = static_cast<uint32_t>(word.size()), padded = (n + 4) & ~3u;
  auto candidate = [](uint32_t rank, uint32_t at) {
    return static_cast<int>(rank << kPlaceBits | at);
  };
  auto byte = [&](uint32_t at) { return static_cast<uint8_t>(word[at - 1]); };
  for (uint32_t i = 1; i <= n; ++i) {
    symbols[i] = byte(i);
    next[i] = static_cast<uint8_t>(i + 1), previous[i] = static_cast<uint8_t>(i - 1);
  }
  symbols[0] = symbols[n + 1] = kNoSymbol;
  next[n + 1] = static_cast<uint8_t>(n + 1);
  for (uint32_t i = 1; i < n; ++i)
    best_of[i] = candidate(byte_ranks_[byte(i) | static_cast<size_t>(byte(i + 1)) << 8], i);
  for (uint32_t i = n; i < padded; ++i) best_of[i] = kNoMerge;
  best_of[0] = kNoMerge;
  for (;;) {
    int best = least_of(best_of, padded);
    if (best >= kNoMerge) break;
    uint32_t at = static_cast<uint32_t>(best) & ((1 << kPlaceBits) - 1);
    uint32_t gone = next[at], after = next[gone], before = previous[at];
    uint32_t made = whole(static_cast<uint32_t>(best) >> kPlaceBits);
    symbols[at] = made;
    next[at] = static_cast<uint8_t>(after);
    previous[after] = static_cast<uint8_t>(at);
    best_of[gone] = kNoMerge;
    best_of[at] = candidate(rank(made, symbols[after]), at);
    best_of[before] = candidate(rank(symbols[before], made), before);
  }
  for (uint32_t i = 1; i <= n; i = next[i]) *out++ = ids_[symbols[i]];
  return out;
}

int32_t* Bpe::merge_long(std::string_view word, int32_t* out) const {
  struct Symbol {
    uint32_t symbol;  // kNoSymbol once it is part of its left neighbour
    size_t previous, next;
  };
  using Candidate = std::pair<uint32_t, size_t>;  // rank, position of the left symbol
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  size_t n = word.size();
  std::vector<Symbol> symbols(n);
  for (size_t i = 0; i < n; ++i) symbols[i] = {static_cast<uint8_t>(word[i]), i - 1, i + 1};
  auto rank_at = [&](size_t at) {
    return rank(symbols[at].symbol, symbols[symbols[at].next].symbol);
  };
  auto push = [&](size_t at) {
    if (symbols[at].next == n) return;
    if (uint32_t found = rank_at(at); found != kNever) queue.emplace(found, at);
  };
  for (size_t i = 0; i + 1 < n; ++i) push(i);
  while (!queue.empty()) {
    auto [rank, at] = queue.top();
    queue.pop();
    Symbol& left = symbols[at];
    if (left.symbol == kNoSymbol || left.next == n) continue;
    if (rank_at(at) != rank) continue;  // a merge nearby has changed the pair
    left.symbol = whole(rank);
    symbols[left.next].symbol = kNoSymbol;
    left.next = symbols[left.next].next;
    if (left.next < n) symbols[left.next].previous = at;
    if (left.previous < n) push(left.previous);
    push(at);
  }
  for (size_t i = 0; i < n; i = symbols[i].next) *out++ = ids_[symbols[i].symbol];
  return out;
}

}  // namespace neox
