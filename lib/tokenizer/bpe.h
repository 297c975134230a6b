// Byte-pair encoding of one word (Sennrich et al. 2016, on bytes as in GPT-2): starting from the
// ids of its bytes, the neighbours with the best rank are joined, leftmost first, until no merge
// applies. Immutable, so any number of threads may encode.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace neox {

// GPT-2's spelling of bytes as printable characters: ' ' is "Ġ", 0xC3 is "Ã".
std::string to_byte_level(std::string_view bytes);
// The bytes, or false where some character spells none.
bool from_byte_level(std::string_view text, std::string& bytes);

// A merge of two ids by its place in the list of merges.
struct BpeMerge {
  int32_t left, right, whole;
};

class Bpe {
 public:
  enum class WholeWords { kMergeOnly, kFirst };  // kFirst: a word that is a token is that token
  // tokens: the byte-level text of each id. Of equal merges the last counts. Throws Error where a
  // byte that UTF-8 uses has no token.
  Bpe(const std::vector<std::string>& tokens, const std::vector<BpeMerge>& merges,
      WholeWords whole_words);

  // Appends the ids of a word: UTF-8, not empty. Takes O(n log n) for n bytes.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  // Ranks are below 2^22, ids below 2^21, so that a pair and its rank fit into 64 bits.
  static constexpr int kRankBits = 22, kIdBits = 21;
  static constexpr uint32_t kNever = (1u << kRankBits) - 1;
  void insert(const BpeMerge& merge, uint32_t rank);
  size_t slot_of(uint64_t pair) const;
  uint32_t rank(uint32_t left, uint32_t right) const;
  void merge_short(std::string_view word, std::vector<int32_t>& ids) const;
  void merge_long(std::string_view word, std::vector<int32_t>& ids) const;

  uint32_t byte_ids_[256];
  std::vector<uint32_t> byte_ranks_;  // of two bytes
  std::vector<uint64_t> table_;       // pair << kRankBits | rank, open addressing
  int shift_ = 0;
  std::vector<uint32_t> wholes_;                    // of each rank
  std::unordered_map<std::string, int32_t> words_;  // with WholeWords::kFirst only
};

}  // namespace neox
