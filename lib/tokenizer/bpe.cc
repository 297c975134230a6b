#include "tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
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

// The ids of recent words of one thread: a slot for each hash, overwritten by the next word there.
constexpr size_t kCacheSlots = 1 << 15, kCachedBytes = 24, kCachedIds = 8;

struct CacheKey {
  std::array<uint64_t, kCachedBytes / 8> text{};
  uint32_t owner = 0;
  uint32_t bytes = 0;
  bool operator==(const CacheKey&) const = default;
};

struct CachedWord {
  CacheKey key;
  uint32_t count = 0;
  int32_t ids[kCachedIds];
};

uint64_t mix(uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ x >> 32;
}

CachedWord& cached(const CacheKey& key) {
  thread_local std::vector<CachedWord> slots(kCacheSlots);
  uint64_t hash = key.owner;
  for (uint64_t part : key.text) hash = mix(hash ^ part);
  return slots[mix(hash) % kCacheSlots];
}

bool occurs_in_utf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

constexpr size_t kShortWord = 48;  // up to here trying every pair beats a queue

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
  static std::atomic<uint32_t> next_owner = 1;
  owner_ = next_owner++;
  std::fill(byte_ids_, byte_ids_ + 256, -1);
  std::string bytes;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!from_byte_level(tokens[id], bytes)) continue;
    if (bytes.size() == 1) byte_ids_[static_cast<uint8_t>(bytes[0])] = static_cast<int32_t>(id);
    if (whole_words == WholeWords::kFirst) words_[bytes] = static_cast<int32_t>(id);
  }
  for (int b = 0; b < 256; ++b)
    check_io(byte_ids_[b] >= 0 || !occurs_in_utf8(b), "the vocabulary has no token for the byte ",
             b, " (\"", to_byte_level(std::string(1, static_cast<char>(b))),
             "\"), so text that holds it would be lost");
  size_t slots = std::bit_ceil(2 * merges.size() + 2);
  shift_ = 64 - std::countr_zero(slots);
  table_.assign(slots, {UINT64_MAX, kNever, 0});
  for (size_t rank = 0; rank < merges.size(); ++rank)
    insert(merges[rank], static_cast<int32_t>(rank));
}

void Bpe::insert(const BpeMerge& merge, int32_t rank) {
  auto& entry = const_cast<Entry&>(find(merge.left, merge.right));
  entry = {static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right), rank,
           merge.whole};
}

// The pair's entry, or the empty one where it belongs (rank kNever).
const Bpe::Entry& Bpe::find(int32_t left, int32_t right) const {
  uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  size_t slot = pair * 0x9E3779B97F4A7C15u >> shift_;
  while (table_[slot].pair != pair && table_[slot].rank != kNever)
    slot = (slot + 1) & (table_.size() - 1);
  return table_[slot];
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.size() > kCachedBytes) return encode_uncached(word, ids);
  CacheKey key{.owner = owner_, .bytes = static_cast<uint32_t>(word.size())};
  std::memcpy(key.text.data(), word.data(), word.size());
  CachedWord& slot = cached(key);
  if (slot.key == key) {
    ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
    return;
  }
  size_t before = ids.size();
  encode_uncached(word, ids);
  size_t count = ids.size() - before;
  if (count > kCachedIds) return;
  slot.key = key;
  slot.count = static_cast<uint32_t>(count);
  std::copy(ids.begin() + static_cast<ptrdiff_t>(before), ids.end(), slot.ids);
}

void Bpe::encode_uncached(std::string_view word, std::vector<int32_t>& ids) const {
  if (!words_.empty())
    if (auto found = words_.find(std::string(word)); found != words_.end())
      return ids.push_back(found->second);
  word.size() <= kShortWord ? merge_short(word, ids) : merge_long(word, ids);
}

void Bpe::merge_short(std::string_view word, std::vector<int32_t>& ids) const {
  int32_t symbols[kShortWord], ranks[kShortWord];  // ranks[i]: of symbols i and i + 1
  size_t n = word.size();
  for (size_t i = 0; i < n; ++i) symbols[i] = byte_ids_[static_cast<uint8_t>(word[i])];
  for (size_t i = 0; i + 1 < n; ++i) ranks[i] = find(symbols[i], symbols[i + 1]).rank;
  while (n > 1) {
    size_t best = static_cast<size_t>(std::min_element(ranks, ranks + n - 1) - ranks);
    if (ranks[best] == kNever) break;
    symbols[best] = find(symbols[best], symbols[best + 1]).whole;
    std::copy(symbols + best + 2, symbols + n, symbols + best + 1);
    std::copy(ranks + best + 1, ranks + n - 1, ranks + best);
    --n;
    if (best + 1 < n) ranks[best] = find(symbols[best], symbols[best + 1]).rank;
    if (best > 0) ranks[best - 1] = find(symbols[best - 1], symbols[best]).rank;
  }
  ids.insert(ids.end(), symbols, symbols + n);
}

void Bpe::merge_long(std::string_view word, std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id;  // -1 once it is part of its left neighbour
    size_t previous, next;
  };
  using Candidate = std::pair<int32_t, size_t>;  // rank, position of the left symbol
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  size_t n = word.size();
  std::vector<Symbol> symbols(n);
  for (size_t i = 0; i < n; ++i)
    symbols[i] = {byte_ids_[static_cast<uint8_t>(word[i])], i - 1, i + 1};
  auto entry = [&](size_t at) { return find(symbols[at].id, symbols[symbols[at].next].id); };
  auto push = [&](size_t at) {
    if (symbols[at].next == n) return;
    if (Entry found = entry(at); found.rank != kNever) queue.emplace(found.rank, at);
  };
  for (size_t i = 0; i + 1 < n; ++i) push(i);
  while (!queue.empty()) {
    auto [rank, at] = queue.top();
    queue.pop();
    Symbol& left = symbols[at];
    if (left.id < 0 || left.next == n) continue;
    Entry found = entry(at);
    if (found.rank != rank) continue;  // a merge nearby has changed the pair
    left.id = found.whole;
    symbols[left.next].id = -1;
    left.next = symbols[left.next].next;
    if (left.next < n) symbols[left.next].previous = at;
    if (left.previous < n) push(left.previous);
    push(at);
  }
  for (size_t i = 0; i < n; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace neox
