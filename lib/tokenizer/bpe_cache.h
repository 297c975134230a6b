// Encoding with the ids of the words that a thread has met: a look-up for each word in a table that
// holds the ids in place, and merges only for new words. A batch of words is looked up at once, so
// that the waits for memory overlap. Each thread has its own cache for each tokenizer (of_thread).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/bpe_scan.h"
#include "tokenizer/bpe_split.h"

namespace neox {

// What the ids of words depend on.
struct WordRules {
  Bpe bpe;
  Words words = Words::kGpt2;
  // The added token of n blanks in a row for each n from 2 on (0 and 1 are not used), where a
  // tokenizer has such tokens and no other ones that are looked for in the normalized text.
  std::vector<int32_t> blank_runs = {};
};

class WordCache {
 public:
  explicit WordCache(std::shared_ptr<const WordRules> rules);
  // The cache of this thread. It lives until the thread ends, or until the thread has asked for
  // several others since.
  static WordCache& of_thread(const std::shared_ptr<const WordRules>& rules);

  // Appends the ids of the words of a text (valid UTF-8, not empty).
  void encode_text(std::string_view text, std::vector<int32_t>& ids);

 private:
  // A word of up to 15 bytes: their complement, padded with zeros. That is never all zeros, since
  // no byte of UTF-8 is 255. The last byte is the number of ids, 0 where the slot is empty. More
  // than 4 ids stand in many_, from ids[0] on.
  struct Slot {
    uint64_t low, high;
    int32_t ids[4];
  };
  struct alignas(64) Line {
    Slot slots[2];
  };
  struct Free {
    size_t bytes;
    void operator()(Line* lines) const;
  };
  struct Key {
    uint64_t low, high;
    Line* line;
  };
  // A longer word in long_words_: its ids and its bytes stand in long_data_ from `at` on.
  struct LongSlot {
    uint64_t hash = 0;
    uint32_t at = 0, bytes = 0, count = 0;
  };
  static uint64_t difference(const Slot& slot, const Key& key);
  static const Slot* find(const Key& key);
  Line* line_of(uint64_t low, uint64_t high) const;
  Key key_of(std::string_view word) const;
  // These write the ids of a word to `out`, which has room for one for each byte, and return their
  // end.
  int32_t* encode_known_or_new(std::string_view word, const Key& key, int32_t* out);
  int32_t* encode_long(std::string_view word, int32_t* out);
  void keep_long(std::string_view word, size_t slot, uint64_t hash, std::span<const int32_t> ids);
  struct Written {
    int32_t* end;
    size_t left;  // blanks at the end of a run that no token covers, 0 or 1
  };
  Written encode_any(std::string_view word, int32_t* out);
  Written encode_run(size_t blanks, int32_t* out) const;
  bool is_run(std::string_view word) const;
  size_t append(std::string_view word, std::vector<int32_t>& ids);
  void encode_scanned(std::string_view text, std::vector<int32_t>& ids);
  void encode_split(std::string_view text, std::vector<int32_t>& ids);
  void find_lines(const char* from, std::span<const uint32_t> starts);
  size_t encode_batch(std::string_view text, size_t base, std::span<const uint32_t> starts,
                      std::vector<int32_t>& ids);
  void keep(const Key& key, std::span<const int32_t> ids);
  void resize(int line_bits);

  std::shared_ptr<const WordRules> rules_;
  std::unique_ptr<Line, Free> lines_;
  int line_bits_ = 0;
  uint64_t line_mask_ = 0;  // of offsets in bytes
  size_t used_ = 0, evicted_ = 0;
  std::vector<int32_t> many_;
  std::vector<LongSlot> long_words_;
  std::vector<char> long_data_;
  size_t num_long_ = 0;
  std::vector<Key> keys_;
  std::vector<uint32_t> starts_;
  std::vector<int32_t> found_;
};

}  // namespace neox
