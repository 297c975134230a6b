#include "tokenizer/bpe_words.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "tokenizer/bpe_split.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

constexpr size_t kBatchBytes = 1 << 18;  // of text that a thread takes at a time
constexpr size_t kChunkBytes = 1 << 20;  // of long words
constexpr size_t kFirstSlots = 1 << 12;

template <class T>
uint64_t load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

uint64_t mix(uint64_t low, uint64_t high) {
  __uint128_t product =
      static_cast<__uint128_t>(low ^ 0x9E3779B97F4A7C15) * (high ^ 0xD6E8FEB86659FD93);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_of_text(std::string_view text) {
  uint64_t hash = text.size();
  while (text.size() > 8) {
    hash = mix(hash, load<uint64_t>(text.data()));
    text.remove_prefix(8);
  }
  char rest[8] = {};
  std::memcpy(rest, text.data(), text.size());
  return mix(hash, load<uint64_t>(rest));
}

}  // namespace

WordCounts::WordCounts() : slots_(kFirstSlots) {}

std::string_view WordCounts::text_of(const Slot& slot) {
  if (slot.key.size() != kLong)
    return {reinterpret_cast<const char*>(&slot.key), static_cast<size_t>(slot.key.size())};
  return {reinterpret_cast<const char*>(slot.key.low),
          static_cast<size_t>(slot.key.high & ((uint64_t{1} << 56) - 1))};
}

// Reads no byte outside of the word, and none by itself where there are four.
WordCounts::Key WordCounts::short_key(std::string_view word) {
  const char* text = word.data();
  const size_t n = word.size();
  Key key{.high = uint64_t{n} << 56};
  if (n > 8) {
    key.low = load<uint64_t>(text);
    key.high |= load<uint64_t>(text + n - 8) >> (8 * (16 - n));
  } else if (n >= 4) {
    key.low = load<uint32_t>(text) | load<uint32_t>(text + n - 4) << (8 * (n - 4));
  } else if (n > 0) {
    for (size_t i : {size_t{0}, n / 2, n - 1})
      key.low |= static_cast<uint64_t>(static_cast<uint8_t>(text[i])) << (8 * i);
  }
  return key;
}

WordCounts::Key WordCounts::keep(std::string_view word) {
  if (long_.empty() || long_.back().capacity() - long_.back().size() < word.size())
    long_.emplace_back().reserve(std::max(kChunkBytes, word.size()));
  std::vector<char>& chunk = long_.back();
  chunk.insert(chunk.end(), word.begin(), word.end());
  return {.low = reinterpret_cast<uint64_t>(chunk.data() + chunk.size() - word.size()),
          .high = kLong << 56 | word.size()};
}

uint64_t WordCounts::hash_of(const Key& key) { return mix(key.low, key.high); }

void WordCounts::add(std::span<const std::string_view> words) {
  Key keys[kAtOnce];
  uint64_t hashes[kAtOnce];
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].size() > kShort) continue;
    keys[i] = short_key(words[i]);
    hashes[i] = hash_of(keys[i]);
    __builtin_prefetch(&slots_[hashes[i] & (slots_.size() - 1)], 1);
  }
  for (size_t i = 0; i < words.size(); ++i)
    words[i].size() > kShort ? add_long(words[i], 1) : add_short(keys[i], hashes[i], 1);
}

void WordCounts::add(std::string_view word, int64_t times) {
  if (word.size() > kShort) return add_long(word, times);
  Key key = short_key(word);
  add_short(key, hash_of(key), times);
}

void WordCounts::add_short(const Key& key, uint64_t hash, int64_t times) {
  size_t mask = slots_.size() - 1, at = hash & mask;
  while (slots_[at].count > 0 && slots_[at].key != key) at = (at + 1) & mask;
  Slot& slot = slots_[at];
  if (slot.count > 0) {
    slot.count += times;
    return;
  }
  slot = {key, hash, times};
  if (static_cast<size_t>(++size_) * 2 > slots_.size()) grow();
}

void WordCounts::add_long(std::string_view word, int64_t times) {
  uint64_t hash = hash_of_text(word);
  size_t mask = slots_.size() - 1, at = hash & mask;
  while (slots_[at].count > 0 && (slots_[at].hash != hash || text_of(slots_[at]) != word))
    at = (at + 1) & mask;
  Slot& slot = slots_[at];
  if (slot.count > 0) {
    slot.count += times;
    return;
  }
  slot = {keep(word), hash, times};
  if (static_cast<size_t>(++size_) * 2 > slots_.size()) grow();
}

void WordCounts::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.count == 0) continue;
    size_t at = slot.hash & mask;
    while (slots_[at].count > 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

void WordCounts::add(const WordCounts& other) {
  other.each([&](std::string_view word, int64_t count) { add(word, count); });
}

namespace {

using Batch = std::vector<std::string>;  // documents

void count(const Batch& batch, BpeTrainerConfig::Normalizer normalizer, WordCounts& counts) {
  std::string repaired, composed;
  for (std::string_view text : batch) {
    text = unicode::repair(text, repaired);
    if (normalizer == BpeTrainerConfig::Normalizer::kNfc)
      text = unicode::in_form(text, unicode::Form::kNfc, composed);
    for (WordSplitter words(text); !words.done();) {
      std::array<std::string_view, WordCounts::kAtOnce> some;
      size_t n = 0;
      while (n < some.size() && !words.done()) some[n++] = words.next();
      counts.add(std::span(some).first(n));
    }
  }
}

// Threads that count batches; whoever brings them counts too while the others are busy.
class Counting {
 public:
  explicit Counting(const BpeTrainerConfig& config) : normalizer_(config.normalizer) {
    for (int i = 0; i < std::max(config.num_threads, 1); ++i) counts_.emplace_back();
    try {
      for (size_t i = 1; i < counts_.size(); ++i)
        threads_.emplace_back([this, i] { work(counts_[i]); });
    } catch (...) {  // one cannot be started, and no destructor follows
      stop();
      throw;
    }
  }
  ~Counting() { stop(); }

  void add(Batch batch) {
    {
      std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
      if (waiting_.size() < counts_.size() - 1) {
        waiting_.push_back(std::move(batch));
        changed_.notify_one();
        return;
      }
    }
    count(batch, normalizer_, counts_[0]);
  }

  WordCounts finish() {
    stop();
    if (error_) std::rethrow_exception(error_);
    for (size_t i = 1; i < counts_.size(); ++i) {
      counts_[0].add(counts_[i]);
      counts_[i] = {};
    }
    return std::move(counts_[0]);
  }

 private:
  void stop() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    threads_.clear();
  }

  void work(WordCounts& counts) {
    for (Batch batch;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      batch = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      try {
        count(batch, normalizer_, counts);
      } catch (...) {
        std::lock_guard guard(mutex_);
        error_ = std::current_exception();
      }
    }
  }

  BpeTrainerConfig::Normalizer normalizer_;
  std::deque<WordCounts> counts_;  // one for each thread
  std::mutex mutex_;               // guards what follows
  std::condition_variable changed_;
  std::deque<Batch> waiting_;
  bool ended_ = false;
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;
};

}  // namespace

WordCounts count_words(const BpeTrainerConfig& config, const NextDocument& next_document) {
  Counting counting(config);
  int64_t done = 0;
  for (bool more = true; more;) {
    Batch batch;
    size_t bytes = 0;
    for (std::string text; bytes < kBatchBytes && (more = next_document(text)); text.clear()) {
      bytes += text.size() + 1;
      batch.push_back(std::move(text));
    }
    counting.add(std::move(batch));
    done += static_cast<int64_t>(bytes);
    if (config.progress) config.progress({BpeProgress::Stage::kCount, done, 0});
  }
  return counting.finish();
}

}  // namespace neox
