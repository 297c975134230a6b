// Counts the words of many documents, with several threads where asked for. The words are those of
// GPT-2's splitter.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/bpe_trainer.h"

namespace neox {

// Words and how often each came. Short ones lie in the table itself, so that counting one more of
// them touches one cache line.
class WordCounts {
 public:
  WordCounts();
  void add(std::string_view word, int64_t times);
  void add(const WordCounts& other);
  int64_t size() const { return size_; }
  // visit(std::string_view word, int64_t count) for each, in no order to rely on.
  template <class Visit>
  void each(Visit visit) const {
    for (const Slot& slot : slots_)
      if (slot.count > 0) visit(text_of(slot), slot.count);
  }

 private:
  static constexpr size_t kShort = 15;  // bytes that a slot holds
  struct Slot {
    // Short: the bytes, zeros, and last their number. Long: address and size in long_, and in the
    // last byte kLong.
    alignas(16) char key[16];
    uint64_t hash;
    int64_t count;  // 0: free
  };
  static constexpr char kLong = 16;

  bool holds(const Slot& slot, const Slot& wanted, std::string_view word) const;
  std::string_view text_of(const Slot& slot) const;
  std::string_view keep(std::string_view word);
  Slot& place_of(const Slot& wanted, std::string_view word);
  void grow();

  std::vector<Slot> slots_;
  int64_t size_ = 0;
  std::vector<std::vector<char>> long_;  // texts of long words; never moved
};

WordCounts count_words(const BpeTrainerConfig& config, const NextDocument& next_document);

}  // namespace neox
