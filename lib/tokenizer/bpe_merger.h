// The merges that byte-pair encoding learns from counted words, in the order of the reference:
// do_train() of Hugging Face's `tokenizers` 0.23 (models/bpe/trainer.rs). One thread.
#pragma once
#include <cstdint>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tokenizer/bpe_trainer.h"
#include "tokenizer/bpe_words.h"

namespace neox {

// Counts of pairs: a table with open addressing, from which nothing is removed.
class PairCounts {
 public:
  PairCounts() : slots_(size_t{1} << 16) {}
  int64_t& operator[](uint64_t pair);

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Slot {
    uint64_t pair = kFree;
    int64_t count = 0;
  };
  Slot& find(uint64_t pair);
  void grow();

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

// Pairs that wait to be merged, the best first. All but the frequent ones lie in no order
// until it is their turn, to which most never come.
class PairQueue {
 public:
  struct Candidate {
    int64_t count;
    uint64_t pair;
    uint32_t serial;
    // Last comes the best: the most frequent, then the smallest pair of ids, then the oldest.
    bool operator<(const Candidate& other) const {
      if (count != other.count) return count < other.count;
      return pair != other.pair ? pair > other.pair : serial > other.serial;
    }
  };
  void push(const Candidate& candidate);
  bool pop(Candidate& best);  // false: none is left

 private:
  void lower();

  std::priority_queue<Candidate> frequent_;  // counts from least_ on
  std::vector<Candidate> others_;
  int64_t least_ = INT64_MAX;
};

class BpeMerger {
 public:
  // Takes the words' memory.
  BpeMerger(const BpeTrainerConfig& config, WordCounts words);
  TrainedBpe run();

 private:
  // Of an id that stands before or behind the pair that is being merged.
  struct Neighbour {
    int64_t count = 0;
    uint32_t last = UINT32_MAX;  // word that was noted last
    uint32_t places = 0;
  };
  struct Side {
    std::vector<Neighbour> neighbours;                // of each id
    std::vector<int32_t> met;                         // ids that have a count
    std::vector<std::pair<int32_t, uint32_t>> notes;  // (id, word)
    std::vector<std::span<uint32_t>> places;          // of each of `met`: the words of the notes
    void note(int32_t id, uint32_t word, int64_t count);
  };

  void add_token(const std::string& text);
  void add_alphabet();
  void add_words(const WordCounts& words);
  void queue_pairs_of_bytes();
  template <class Visit>
  void each_word(Visit visit);
  bool next(PairQueue::Candidate& best);
  void merge(const PairQueue::Candidate& best);
  void merge_word(uint32_t word, int32_t left, int32_t right, int32_t whole);
  void sort_notes(Side& side);
  void clear(Side& side);
  void queue(int32_t left, int32_t right, std::span<const uint32_t> places);
  void queue_neighbours(int32_t left, int32_t right, int32_t whole);
  std::span<uint32_t> new_places(size_t size);
  std::vector<BpeMerge> merges_by_rank() const;

  const BpeTrainerConfig& config_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  int32_t byte_ids_[256];
  // Word by word: the number of symbols, the word's count in two halves, the symbols. A word is
  // known by where it begins.
  std::vector<int32_t> words_;
  PairCounts counts_;
  PairQueue queue_;
  std::vector<std::span<const uint32_t>> places_;    // words that may hold a pair, by serial
  std::vector<std::unique_ptr<uint32_t[]>> chunks_;  // hold them
  std::span<uint32_t> free_;                         // what is left of one of these
  Side before_, behind_;
  std::vector<BpeMerge> merges_;
};

}  // namespace neox
