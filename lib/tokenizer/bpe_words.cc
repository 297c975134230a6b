#include "tokenizer/bpe_words.h"

#include <algorithm>
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

uint64_t load(const char* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

uint64_t mix(uint64_t low, uint64_t high) {
  __uint128_t product =
      static_cast<__uint128_t>(low ^ 0x9E3779B97F4A7C15) * (high ^ 0xD6E8FEB86659FD93);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size();
  while (text.size() > 8) {
    hash = mix(hash, load(text.data()));
    text.remove_prefix(8);
  }
  char rest[8] = {};
  std::memcpy(rest, text.data(), text.size());
  return mix(hash, load(rest));
}

}  // namespace

WordCounts::WordCounts() : slots_(kFirstSlots) {}

std::string_view WordCounts::text_of(const Slot& slot) const {
  if (slot.key[kShort] != kLong) return {slot.key, static_cast<size_t>(slot.key[kShort])};
  const char* text;
  std::memcpy(&text, slot.key, sizeof text);
  uint32_t size;
  std::memcpy(&size, slot.key + 8, sizeof size);
  return {text, size};
}

bool WordCounts::holds(const Slot& slot, const Slot& wanted, std::string_view word) const {
  if (wanted.key[kShort] == kLong) return slot.hash == wanted.hash && text_of(slot) == word;
  return load(slot.key) == load(wanted.key) && load(slot.key + 8) == load(wanted.key + 8);
}

WordCounts::Slot& WordCounts::place_of(const Slot& wanted, std::string_view word) {
  size_t mask = slots_.size() - 1, at = wanted.hash & mask;
  while (slots_[at].count > 0 && !holds(slots_[at], wanted, word)) at = (at + 1) & mask;
  return slots_[at];
}

std::string_view WordCounts::keep(std::string_view word) {
  if (long_.empty() || long_.back().capacity() - long_.back().size() < word.size())
    long_.emplace_back().reserve(std::max(kChunkBytes, word.size()));
  std::vector<char>& chunk = long_.back();
  chunk.insert(chunk.end(), word.begin(), word.end());
  return {chunk.data() + chunk.size() - word.size(), word.size()};
}

void WordCounts::add(std::string_view word, int64_t times) {
  Slot wanted{};
  if (word.size() <= kShort) {
    std::memcpy(wanted.key, word.data(), word.size());
    wanted.key[kShort] = static_cast<char>(word.size());
    wanted.hash = mix(load(wanted.key), load(wanted.key + 8));
  } else {
    wanted.key[kShort] = kLong;
    wanted.hash = hash_of(word);
  }
  Slot& slot = place_of(wanted, word);
  slot.count += times;
  if (slot.count > times) return;
  slot.hash = wanted.hash;
  std::memcpy(slot.key, wanted.key, sizeof slot.key);
  if (wanted.key[kShort] == kLong) {
    const char* text = keep(word).data();
    auto size = static_cast<uint32_t>(word.size());
    std::memcpy(slot.key, &text, sizeof text);
    std::memcpy(slot.key + 8, &size, sizeof size);
  }
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
    if (normalizer == BpeTrainerConfig::Normalizer::kNfc) text = unicode::nfc(text, composed);
    for (WordSplitter words(text); !words.done();) counts.add(words.next(), 1);
  }
}

// Threads that count batches; whoever brings them counts too while the others are busy.
class Counting {
 public:
  explicit Counting(const BpeTrainerConfig& config) : normalizer_(config.normalizer) {
    for (int i = 0; i < std::max(config.num_threads, 1); ++i) counts_.emplace_back();
    for (size_t i = 1; i < counts_.size(); ++i)
      threads_.emplace_back([this, i] { work(counts_[i]); });
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
