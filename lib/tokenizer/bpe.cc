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

bool occurs_in_utf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

constexpr uint32_t kNone = (1u << 21) - 1;  // no id
constexpr uint64_t kEmpty = UINT64_MAX;
constexpr size_t kShortWord = 128;  // up to here trying every pair beats a queue

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
         WholeWords whole_words) {
  check_io(tokens.size() < size_t{1} << kIdBits && merges.size() < kNever, "the vocabulary has ",
           tokens.size(), " tokens and ", merges.size(), " merges; at most ", (1 << kIdBits) - 1,
           " and ", kNever - 1, " are supported");
  std::fill(byte_ids_, byte_ids_ + 256, kNone);
  std::string bytes;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!from_byte_level(tokens[id], bytes)) continue;
    if (bytes.size() == 1) byte_ids_[static_cast<uint8_t>(bytes[0])] = static_cast<uint32_t>(id);
    if (whole_words == WholeWords::kFirst) words_[bytes] = static_cast<int32_t>(id);
  }
  for (int b = 0; b < 256; ++b)
    check_io(byte_ids_[b] != kNone || !occurs_in_utf8(b),
             "the vocabulary has no token for the byte ", b, " (\"",
             to_byte_level(std::string(1, static_cast<char>(b))),
             "\"), so text that holds it would be lost");
  size_t slots = std::bit_ceil(2 * merges.size() + 2);
  shift_ = 64 - std::countr_zero(slots);
  table_.assign(slots, kEmpty);
  wholes_.resize(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank)
    insert(merges[rank], static_cast<uint32_t>(rank));
  byte_ranks_.resize(1 << 16);
  for (size_t i = 0; i < byte_ranks_.size(); ++i)
    byte_ranks_[i] = rank(byte_ids_[i & 255], byte_ids_[i >> 8]);
}

void Bpe::insert(const BpeMerge& merge, uint32_t rank) {
  uint64_t pair = static_cast<uint64_t>(merge.left) << kIdBits | static_cast<uint64_t>(merge.right);
  table_[slot_of(pair)] = pair << kRankBits | rank;
  wholes_[rank] = static_cast<uint32_t>(merge.whole);
}

// Where the pair is, or the empty slot where it belongs.
inline size_t Bpe::slot_of(uint64_t pair) const {
  size_t slot = pair * 0x9E3779B97F4A7C15u >> shift_;
  while (table_[slot] >> kRankBits != pair && table_[slot] != kEmpty)
    slot = (slot + 1) & (table_.size() - 1);
  return slot;
}

// Of the merge of two ids; kNever where there is none.
inline uint32_t Bpe::rank(uint32_t left, uint32_t right) const {
  uint64_t pair = static_cast<uint64_t>(left) << kIdBits | right;
  return static_cast<uint32_t>(table_[slot_of(pair)]) & kNever;
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (!words_.empty())
    if (auto found = words_.find(std::string(word)); found != words_.end())
      return ids.push_back(found->second);
  word.size() <= kShortWord ? merge_short(word, ids) : merge_long(word, ids);
}

// Symbols stay in their places, so that a candidate (rank and place in one number) stays right
// until a neighbour changes, and the best one is the least of an array.
void Bpe::merge_short(std::string_view word, std::vector<int32_t>& ids) const {
  constexpr uint32_t kPlaceBits = 7, kNoMerge = kNever << kPlaceBits;
  static_assert(kShortWord <= 1 << kPlaceBits);
  uint32_t symbols[kShortWord], best_of[kShortWord];
  uint8_t next[kShortWord], previous[kShortWord];
  uint32_t n = static_cast<uint32_t>(word.size()), padded = (n + 3) & ~3u;
  auto byte = [&](uint32_t at) { return static_cast<uint8_t>(word[at]); };
  for (uint32_t i = 0; i < n; ++i) {
    symbols[i] = byte_ids_[byte(i)];
    next[i] = static_cast<uint8_t>(i + 1), previous[i] = static_cast<uint8_t>(i - 1);
  }
  for (uint32_t i = 0; i + 1 < n; ++i)
    best_of[i] = byte_ranks_[byte(i) | static_cast<size_t>(byte(i + 1)) << 8] << kPlaceBits | i;
  for (uint32_t i = n - 1; i < padded; ++i) best_of[i] = kNoMerge;
  for (;;) {
    uint32_t best = kNoMerge;
    for (uint32_t i = 0; i < padded; i += 4)
      for (uint32_t j = 0; j < 4; ++j) best = std::min(best, best_of[i + j]);
    if (best >= kNoMerge) break;
    uint32_t at = best & ((1 << kPlaceBits) - 1), gone = next[at], after = next[gone];
    uint32_t whole = wholes_[best >> kPlaceBits];
    symbols[at] = whole;
    next[at] = static_cast<uint8_t>(after);
    best_of[gone] = best_of[at] = kNoMerge;
    if (after < n) {
      previous[after] = static_cast<uint8_t>(at);
      best_of[at] = rank(whole, symbols[after]) << kPlaceBits | at;
    }
    if (at > 0) {
      uint32_t before = previous[at];
      best_of[before] = rank(symbols[before], whole) << kPlaceBits | before;
    }
  }
  for (uint32_t i = 0; i < n; i = next[i]) ids.push_back(static_cast<int32_t>(symbols[i]));
}

void Bpe::merge_long(std::string_view word, std::vector<int32_t>& ids) const {
  struct Symbol {
    uint32_t id;  // kNone once it is part of its left neighbour
    size_t previous, next;
  };
  using Candidate = std::pair<uint32_t, size_t>;  // rank, position of the left symbol
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  size_t n = word.size();
  std::vector<Symbol> symbols(n);
  for (size_t i = 0; i < n; ++i)
    symbols[i] = {byte_ids_[static_cast<uint8_t>(word[i])], i - 1, i + 1};
  auto rank_at = [&](size_t at) { return rank(symbols[at].id, symbols[symbols[at].next].id); };
  auto push = [&](size_t at) {
    if (symbols[at].next == n) return;
    if (uint32_t found = rank_at(at); found != kNever) queue.emplace(found, at);
  };
  for (size_t i = 0; i + 1 < n; ++i) push(i);
  while (!queue.empty()) {
    auto [rank, at] = queue.top();
    queue.pop();
    Symbol& left = symbols[at];
    if (left.id == kNone || left.next == n) continue;
    if (rank_at(at) != rank) continue;  // a merge nearby has changed the pair
    left.id = wholes_[rank];
    symbols[left.next].id = kNone;
    left.next = symbols[left.next].next;
    if (left.next < n) symbols[left.next].previous = at;
    if (left.previous < n) push(left.previous);
    push(at);
  }
  for (size_t i = 0; i < n; i = symbols[i].next) ids.push_back(static_cast<int32_t>(symbols[i].id));
}

}  // namespace neox
