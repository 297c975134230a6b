// Counts the words of many documents, with several threads where asked for. The words are those of
// GPT-2's splitter.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/bpe_trainer.h"

namespace neox {

// Words and how often each came. Short ones lie in the table itself, so that counting one more of
// them touches one cache line. One thread.
class WordCounts {
 public:
  WordCounts();
  static constexpr size_t kAtOnce = 64;
  // Each once more; up to kAtOnce words, for which the table is fetched from memory together.
  void add(std::span<const std::string_view> words);
  void add(const WordCounts& other);
  int64_t size() const { return size_; }
  // visit(std::string_view word, int64_t count) for each, in no order to rely on.
  template <class Visit>
  void each(Visit visit) const {
    for (const Slot& slot : slots_)
      if (slot.count > 0) visit(text_of(slot), slot.count);
  }

 private:
  static constexpr size_t kShort = 15;  // bytes that a key holds
  static constexpr uint64_t kLong = 16;
  // Short words: the bytes, zeros, and in the last byte their number. Long ones: where the text is
  // in long_, its size, and in the last byte kLong.
  struct Key {
    uint64_t low = 0, high = 0;
    uint64_t size() const { return high >> 56; }
    bool operator==(const Key&) const = default;
  };
  struct Slot {
    Key key;
    uint64_t hash = 0;
    int64_t count = 0;  // 0: free
  };

  static Key short_key(std::string_view word);
  static std::string_view text_of(const Slot& slot);
  static uint64_t hash_of(const Key& key);
  void add(std::string_view word, int64_t times);
  void add_short(const Key& key, uint64_t hash, int64_t times);
  void add_long(std::string_view word, int64_t times);
  Key keep(std::string_view word);
  void grow();

  std::vector<Slot> slots_;
  int64_t size_ = 0;
  std::vector<std::vector<char>> long_;  // texts of long words; never moved
};

WordCounts count_words(const BpeTrainerConfig& config, const NextDocument& next_document);

}  // namespace neox
