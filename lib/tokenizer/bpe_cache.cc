#include "tokenizer/bpe_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace neox {
namespace {

constexpr size_t kShort = 15;                        // bytes of a word that fits into a slot
constexpr size_t kLong = 1024;                       // longer words are not kept
constexpr size_t kInPlace = 4;                       // ids
constexpr size_t kReadable = 16;                     // bytes that are read of every word in a batch
constexpr int kMinLineBits = 11, kMaxLineBits = 19;  // 128 KiB to 32 MiB, by steps of 4 times
constexpr size_t kMaxMany = 1 << 22, kMaxLongData = 1 << 24;
constexpr size_t kCachesOfThread = 4;

constexpr uint64_t kMix = 0x9E3779B97F4A7C15u, kMixHigh = 0xD6E8FEB86659FD93u;

struct Mask {
  uint64_t low, high;
};

// The bytes of a word of n bytes; none where it is too long for a slot.
struct Masks {
  Mask of[kShort + 2] = {};
};

constexpr Masks make_masks() {
  Masks masks;
  for (size_t n = 0; n <= kShort; ++n) {
    masks.of[n].low = n < 8 ? (uint64_t{1} << 8 * n) - 1 : UINT64_MAX;
    masks.of[n].high = n < 8 ? 0 : (uint64_t{1} << 8 * (n - 8)) - 1;
  }
  return masks;
}

constexpr Masks kMasks = make_masks();

uint64_t load(const char* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t hash_long(std::string_view word) {
  uint64_t hash = word.size() * kMixHigh;
  size_t last = word.size() - 8;
  for (size_t at = 0; at < last; at += 8) hash = (std::rotl(hash, 23) ^ load(&word[at])) * kMix;
  hash = (std::rotl(hash, 23) ^ load(&word[last])) * kMix;
  return hash ^ hash >> 32;
}

constexpr int kHashShift = 32;  // the offset of a line is taken from the better half of the hash

// A shift by a constant and a mask, where an index would need a shift by a variable.
template <class T>
T* at_offset(T* from, uint64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<char*>(from) + bytes);
}

uint64_t count_of(uint64_t high) { return high >> 56; }

}  // namespace

void WordCache::Free::operator()(Line* lines) const { munmap(lines, bytes); }

WordCache::WordCache(std::shared_ptr<const WordRules> rules)
    : rules_(std::move(rules)),
      long_words_(1 << 8),
      keys_(kMaxStarts),
      found_(kMaxStarts + kInPlace)  // words have at most one id for each byte
{
  resize(kMinLineBits);
}

WordCache& WordCache::of_thread(const std::shared_ptr<const WordRules>& rules) {
  thread_local std::vector<std::unique_ptr<WordCache>> caches;
  auto at = std::find_if(caches.begin(), caches.end(),
                         [&](const auto& cache) { return cache->rules_ == rules; });
  if (at == caches.end()) {
    if (caches.size() == kCachesOfThread) caches.pop_back();
    at = caches.insert(caches.begin(), std::make_unique<WordCache>(rules));
  }
  std::rotate(caches.begin(), at, at + 1);
  return *caches.front();
}

void WordCache::resize(int line_bits) {
  size_t count = size_t{1} << line_bits, bytes = count * sizeof(Line);
  // Anonymous pages are zero, and are there once they are used.
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  madvise(pages, bytes, MADV_HUGEPAGE);  // only a hint
  std::unique_ptr<Line, Free> old(static_cast<Line*>(pages), Free{bytes});
  lines_.swap(old);
  size_t old_count = old ? size_t{1} << line_bits_ : 0;
  line_bits_ = line_bits;
  line_mask_ = (count - 1) * sizeof(Line);
  used_ = 0;
  for (size_t i = 0; i < old_count; ++i)
    for (const Slot& slot : old.get()[i].slots) {
      if (!count_of(slot.high)) continue;
      Line* line = line_of(slot.low, slot.high << 8 >> 8);
      Slot* free = std::find_if(line->slots, line->slots + 2,
                                [](const Slot& s) { return !count_of(s.high); });
      if (free != line->slots + 2) *free = slot, ++used_;
    }
}

inline WordCache::Line* WordCache::line_of(uint64_t low, uint64_t high) const {
  return at_offset(lines_.get(), (low * kMix + high * kMixHigh) >> kHashShift & line_mask_);
}

// 0 where the slot has the word of the key.
inline uint64_t WordCache::difference(const Slot& slot, const Key& key) {
  return (slot.low ^ key.low) | ((slot.high ^ key.high) << 8);
}

inline const WordCache::Slot* WordCache::find(const Key& key) {
  const Slot* slots = key.line->slots;
  if (!difference(slots[0], key)) return slots;
  return difference(slots[1], key) ? nullptr : slots + 1;
}

WordCache::Key WordCache::key_of(std::string_view word) const {
  char bytes[16] = {};
  std::memcpy(bytes, word.data(), word.size());
  const Mask& mask = kMasks.of[word.size()];
  uint64_t low = ~load(bytes) & mask.low, high = ~load(bytes + 8) & mask.high;
  return {low, high, line_of(low, high)};
}

void WordCache::keep(const Key& key, std::span<const int32_t> ids) {
  if (many_.size() + ids.size() > kMaxMany) {
    std::memset(static_cast<void*>(lines_.get()), 0, sizeof(Line) << line_bits_);
    many_.clear();
    used_ = 0;
  }
  Slot* slots = key.line->slots;
  size_t chosen = 0;
  if (!count_of(slots[0].high) || !count_of(slots[1].high)) {
    chosen = count_of(slots[0].high) ? 1 : 0;
    ++used_;
  } else {  // words that came first are likely to be frequent
    chosen = ++evicted_ % 8 ? 1 : 0;
  }
  Slot& slot = slots[chosen];
  slot.low = key.low;
  slot.high = key.high | static_cast<uint64_t>(ids.size()) << 56;
  if (ids.size() <= kInPlace) {
    std::copy(ids.begin(), ids.end(), slot.ids);
  } else {
    slot.ids[0] = static_cast<int32_t>(many_.size());
    many_.insert(many_.end(), ids.begin(), ids.end());
  }
}

bool WordCache::is_run(std::string_view word) const {
  return !rules_->blank_runs.empty() && word.size() > 1 && word[0] == ' ' && word[1] == ' ';
}

WordCache::Written WordCache::encode_run(size_t blanks, int32_t* out) const {
  const std::vector<int32_t>& runs = rules_->blank_runs;
  size_t longest = runs.size() - 1, left = blanks % longest;
  out = std::fill_n(out, blanks / longest, runs[longest]);
  if (left < 2) return {out, left};
  *out++ = runs[left];
  return {out, 0};
}

// A word that fits into a slot, and no run that is longer than a token.
int32_t* WordCache::encode_known_or_new(std::string_view word, const Key& key, int32_t* out) {
  if (const Slot* slot = find(key)) {
    size_t count = count_of(slot->high);
    const int32_t* from = count <= kInPlace ? slot->ids : many_.data() + slot->ids[0];
    return std::copy(from, from + count, out);
  }
  int32_t* end = is_run(word) ? encode_run(word.size(), out).end : rules_->bpe.encode(word, out);
  keep(key, {out, end});
  return end;
}

int32_t* WordCache::encode_long(std::string_view word, int32_t* out) {
  if (word.size() > kLong) return rules_->bpe.encode(word, out);
  uint64_t hash = hash_long(word);
  size_t at = hash & (long_words_.size() - 1);
  for (; long_words_[at].bytes; at = (at + 1) & (long_words_.size() - 1)) {
    const LongSlot& slot = long_words_[at];
    if (slot.hash != hash || slot.bytes != word.size()) continue;
    const char* data = long_data_.data() + slot.at;
    if (std::memcmp(data + slot.count * sizeof(int32_t), word.data(), word.size())) continue;
    std::memcpy(out, data, slot.count * sizeof(int32_t));
    return out + slot.count;
  }
  int32_t* end = rules_->bpe.encode(word, out);
  keep_long(word, at, hash, {out, end});
  return end;
}

// `slot` is the free one where the look-up of the word ends.
void WordCache::keep_long(std::string_view word, size_t slot, uint64_t hash,
                          std::span<const int32_t> ids) {
  if (long_data_.size() + ids.size_bytes() + word.size() > kMaxLongData) {
    std::fill(long_words_.begin(), long_words_.end(), LongSlot{});
    long_data_.clear();
    num_long_ = 0;
    slot = hash & (long_words_.size() - 1);
  }
  long_words_[slot] = {hash, static_cast<uint32_t>(long_data_.size()),
                       static_cast<uint32_t>(word.size()), static_cast<uint32_t>(ids.size())};
  const char* bytes = reinterpret_cast<const char*>(ids.data());
  long_data_.insert(long_data_.end(), bytes, bytes + ids.size_bytes());
  long_data_.insert(long_data_.end(), word.begin(), word.end());
  if (++num_long_ * 2 < long_words_.size()) return;
  std::vector<LongSlot> old(long_words_.size() * 2);
  old.swap(long_words_);
  for (const LongSlot& one : old) {
    if (!one.bytes) continue;
    slot = one.hash & (long_words_.size() - 1);
    while (long_words_[slot].bytes) slot = (slot + 1) & (long_words_.size() - 1);
    long_words_[slot] = one;
  }
}

WordCache::Written WordCache::encode_any(std::string_view word, int32_t* out) {
  if (is_run(word) && word.size() >= rules_->blank_runs.size()) return encode_run(word.size(), out);
  if (word.size() <= kShort) return {encode_known_or_new(word, key_of(word), out), 0};
  return is_run(word) ? encode_run(word.size(), out) : Written{encode_long(word, out), 0};
}

// Returns how many blanks are left.
size_t WordCache::append(std::string_view word, std::vector<int32_t>& ids) {
  size_t before = ids.size();
  ids.resize(before + word.size());
  auto [end, left] = encode_any(word, ids.data() + before);
  ids.resize(static_cast<size_t>(end - ids.data()));
  return left;
}

// Encodes the words between `starts`, which count from `base`. Returns where the next one starts.
size_t WordCache::encode_batch(std::string_view text, size_t base, std::span<const uint32_t> starts,
                               std::vector<int32_t>& ids) {
  const char* from = text.data() + base;
  size_t words = starts.size() - 1, readable = words;
  while (readable && base + starts[readable - 1] + kReadable > text.size()) --readable;
  find_lines(from, starts.first(readable + 1));
  int32_t *begin = found_.data(), *out = begin;
  for (size_t i = 0; i < words; ++i) {
    const Key* keys = keys_.data();
    for (; i < readable; ++i) {
      const Slot* slots = keys[i].line->slots;
      uint64_t first = difference(slots[0], keys[i]), second = difference(slots[1], keys[i]);
      const Slot* slot = first ? slots + 1 : slots;
      uint64_t count = first && second ? 0 : count_of(slot->high);
      if (count - 1 >= kInPlace) [[unlikely]]
        break;
      std::memcpy(out, slot->ids, sizeof slot->ids);
      out += count;
    }
    if (i == words) break;
    std::string_view word(from + starts[i], starts[i + 1] - starts[i]);
    auto [end, left] = encode_any(word, out);
    out = end;
    if (left) {
      ids.insert(ids.end(), begin, out);
      return base + starts[i + 1] - left;
    }
  }
  ids.insert(ids.end(), begin, out);
  if (used_ > size_t{1} << line_bits_ && line_bits_ < kMaxLineBits) resize(line_bits_ + 2);
  return base + starts.back();
}

// Fills keys_ with those of the words between `starts`, and calls their lines into the cache. Reads
// kReadable bytes of each word.
void WordCache::find_lines(const char* from, std::span<const uint32_t> starts) {
  Line* lines = lines_.get();
  const uint64_t mask = line_mask_;
  Key* key = keys_.data();
  uint32_t start = starts[0];
  for (uint32_t end : starts.subspan(1)) {
    const char* word = from + start;
    const Mask& kept = kMasks.of[std::min<size_t>(end - start, kShort + 1)];
    uint64_t low = ~load(word) & kept.low, high = ~load(word + 8) & kept.high;
    Line* line = at_offset(lines, (low * kMix + high * kMixHigh) >> kHashShift & mask);
    __builtin_prefetch(line);
    *key++ = {low, high, line};
    start = end;
  }
}

void WordCache::encode_text(std::string_view text, std::vector<int32_t>& ids) {
  switch (rules_->words) {
    case Words::kGpt2:
      return encode_scanned(text, ids);
    case Words::kWhole:
      append(text, ids);
      return;
    default:
      return encode_split(text, ids);
  }
}

// Batches of as many bytes as those of the scanner.
void WordCache::encode_split(std::string_view text, std::vector<int32_t>& ids) {
  size_t base = 0, end = 0;
  starts_.assign(1, 0);
  auto encode_found = [&] {
    if (starts_.size() > 1) encode_batch(text, base, starts_, ids);
    base = end;
    starts_.assign(1, 0);
  };
  for (WordSplitter words(text, rules_->words); !words.done();) {
    std::string_view word = words.next();
    if (end + word.size() - base > kMaxStarts) encode_found();
    end += word.size();
    if (word.size() <= kMaxStarts) {
      starts_.push_back(static_cast<uint32_t>(end - base));
    } else {
      append(word, ids);
      base = end;
    }
  }
  encode_found();
}

void WordCache::encode_scanned(std::string_view text, std::vector<int32_t>& ids) {
  WordScanner scanner(text, rules_->blank_runs.empty() ? BlankRuns::kSplit : BlankRuns::kCut);
  size_t word = 0;
  while (!scanner.done()) {
    std::span<const uint32_t> starts = scanner.next();
    if (starts.empty()) continue;
    size_t first = scanner.base() + starts[0], last = scanner.base() + starts.back();
    size_t left = first > word ? append(text.substr(word, first - word), ids) : 0;
    word = left ? first - left : encode_batch(text, scanner.base(), starts, ids);
    if (word != last) scanner.restart(word);
  }
  while (word < text.size()) word = text.size() - append(text.substr(word), ids);
}

}  // namespace neox
