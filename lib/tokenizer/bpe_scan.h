// GPT-2's splitter (bpe_split.h) in bulk: where the pieces of a text start, found by bit arithmetic
// on 64 bytes at a time. The classes of ASCII come from SIMD instructions that are chosen as the
// program runs, those of other characters one by one from the tables.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace neox {

enum class Simd { kPlain, kAvx2, kAvx512, kNeon };  // kAvx512: with VBMI and VBMI2
// What this CPU has, the best last.
std::span<const Simd> available_simd();

// kCut: two or more blanks (' ') in a row are a piece of their own; what is before them ends there
// as a text would, and what follows begins as a text would.
enum class BlankRuns { kSplit, kCut };

// The classes of 64 bytes, a bit for each; all bytes of a character have its class. What is in none
// of letter, number and space is "other".
struct ByteClasses {
  uint64_t letter = 0, number = 0, space = 0;
  uint64_t blank = 0, quote = 0;  // ' ' and '\''
  uint64_t high = 0;              // not ASCII
  // Of spaces that are not ASCII: all bytes but the first; the first one of those with 2 and
  // with 3.
  uint64_t space_tail = 0, space_lead2 = 0, space_lead3 = 0;
};

struct ScanState {
  const char* text;
  size_t size;
  uint64_t cut_runs;  // all ones or none
  size_t at = 0;      // of the block that comes next; `ahead` has its classes
  ByteClasses ahead = {};
  // The last bit of each kind in the block before.
  uint64_t letter = 0, number = 0, other = 0, space = 0, blank = 0, run = 0;
  uint64_t clear = 0, set = 0;  // starts that a contraction takes from the block and adds to it
  uint64_t spill_bytes = 0;     // of a character that began in the block before `ahead`
  int spill_class = 0;
};

constexpr size_t kScanBlock = 64, kScanBlocks = 8;
constexpr size_t kMaxStarts = kScanBlock * kScanBlocks;
constexpr size_t kStartsRoom = kMaxStarts + kScanBlock;  // what a scan may write to

// Adds the characters that are not ASCII to the classes of the block at state.at.
void classify_high(ScanState& state, size_t at, ByteClasses& classes);
// Starts of pieces in up to kScanBlocks blocks, counted from state.at; returns how many.
using ScanFunction = size_t (*)(ScanState& state, uint32_t* starts);
// Reads the block at state.at.
using BeginFunction = void (*)(ScanState& state);
struct ScanFunctions {
  BeginFunction begin;
  ScanFunction scan;
};
const ScanFunctions& scan_functions(Simd simd);  // of those that are available
const ScanFunctions& plain_scan();
const ScanFunctions& avx2_scan();
const ScanFunctions& avx512_scan();
const ScanFunctions& neon_scan();

class WordScanner {
 public:
  // text must be valid UTF-8 and outlive the scanner.
  WordScanner(std::string_view text, BlankRuns runs)
      : WordScanner(text, runs, available_simd().back()) {}
  WordScanner(std::string_view text, BlankRuns runs, Simd simd);

  bool done() const { return state_.at >= state_.size; }
  // The next starts of pieces as offsets from base(), kept until the next call; perhaps none.
  std::span<const uint32_t> next() {
    base_ = state_.at;
    return {starts_, functions_.scan(state_, starts_)};
  }
  size_t base() const { return base_; }
  // Goes on at `at`, as if the text began there.
  void restart(size_t at);

 private:
  const ScanFunctions& functions_;
  ScanState state_;
  size_t base_ = 0;
  uint32_t starts_[kStartsRoom];
};

}  // namespace neox
