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

inline bool occurs_in_utf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

// A merge of two ids by its place in the list of merges.
struct BpeMerge {
  int32_t left, right, whole;
};

class Bpe {
 public:
  // kFirst: a word that is a token is that token. kRanks: also merges that make one token have one
  // rank, as in tiktoken; they stand beside each other.
  enum class WholeWords { kMergeOnly, kFirst, kRanks };
  // Of bytes that UTF-8 uses and that have no token: Error, or words lose them before they are
  // merged, as in `tokenizers`.
  enum class LackingBytes { kRefused, kLost };
  // tokens: the byte-level text of each id. Of equal merges the last counts.
  Bpe(const std::vector<std::string>& tokens, const std::vector<BpeMerge>& merges,
      WholeWords whole_words, LackingBytes lacking = LackingBytes::kRefused);

  // Writes the ids of a word (UTF-8, not empty) to `out`, which has room for one for each byte;
  // returns their end. Takes O(n log n) for n bytes.
  int32_t* encode(std::string_view word, int32_t* out) const;
  // The bytes that are lost.
  const std::vector<uint8_t>& lost_bytes() const { return lost_bytes_; }

 private:
  // Inside, a byte is the symbol of its value, and what the merge of rank r makes is the symbol
  // 256 + r (where merges make the same token, that of one of them): so the way from a merge to its
  // result needs no memory. A pair of symbols and the rank of its merge fit into 64 bits.
  static constexpr int kRankBits = 22, kSymbolBits = 21;
  static constexpr uint32_t kNever = (1u << kRankBits) - 1, kNoSymbol = (1u << kSymbolBits) - 1;
  void read_tokens(const std::vector<std::string>& tokens, WholeWords whole_words,
                   std::vector<uint32_t>& symbols);
  void find_lacking_bytes(LackingBytes lacking);
  int32_t* merge(std::string_view word, int32_t* out) const;
  void read_merges(const std::vector<BpeMerge>& merges, WholeWords whole_words,
                   std::vector<uint32_t>& symbols);
  struct Slots {
    size_t first, second;
  };
  Slots slots_of(uint64_t pair) const;
  bool insert(uint64_t entry);
  void fill(const std::vector<uint64_t>& entries);
  uint32_t rank(uint32_t left, uint32_t right) const;
  uint32_t whole(uint32_t rank) const { return wholes_.empty() ? 256 + rank : wholes_[rank]; }
  int32_t* merge_short(std::string_view word, int32_t* out) const;
  int32_t* merge_long(std::string_view word, int32_t* out) const;

  std::vector<int32_t> ids_;  // of each symbol
  std::vector<uint8_t> lost_bytes_;
  std::vector<uint32_t> wholes_;      // of each rank, where some is not 256 + rank; else empty
  std::vector<uint32_t> byte_ranks_;  // of two bytes
  // pair << kRankBits | rank, in one of two places that the hash of the pair names (cuckoo
  // hashing), so that a look-up, which mostly finds nothing, takes no branch.
  std::vector<uint64_t> table_;
  uint64_t hash_ = 0;
  int shift_ = 0;
  std::unordered_map<std::string, int32_t> words_;  // but with WholeWords::kMergeOnly
};

}  // namespace neox
