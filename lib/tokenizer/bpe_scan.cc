#include "tokenizer/bpe_scan.h"

#include <bit>

#include "tokenizer/unicode.h"

namespace neox {
namespace {

using unicode::Class;

void add(ByteClasses& classes, Class kind, uint64_t bits) {
  if (kind == Class::kLetter) classes.letter |= bits;
  if (kind == Class::kNumber) classes.number |= bits;
  if (kind == Class::kSpace) classes.space |= bits;
}

uint64_t low_bits(uint64_t count) { return (uint64_t{1} << count) - 1; }

}  // namespace

void classify_high(ScanState& state, size_t at, ByteClasses& classes) {
  const unicode::Properties& properties = unicode::Properties::get();
  std::string_view text(state.text, state.size);
  uint64_t left = classes.high, spilt = low_bits(state.spill_bytes);
  auto spill_class = static_cast<Class>(state.spill_class);
  add(classes, spill_class, spilt);
  if (spill_class == Class::kSpace) classes.space_tail |= spilt;
  state.spill_bytes = 0;
  for (left &= ~spilt; left;) {
    auto bit = static_cast<uint64_t>(std::countr_zero(left));
    unicode::CodePoint next = unicode::read(text, at + bit);
    Class kind = properties.category(next.value);
    uint64_t bits = low_bits(next.bytes) << bit;
    add(classes, kind, bits);
    if (kind == Class::kSpace) {
      uint64_t lead = uint64_t{1} << bit;
      classes.space_tail |= bits & ~lead;
      (next.bytes == 2 ? classes.space_lead2 : classes.space_lead3) |= lead;
    }
    if (bit + next.bytes > kScanBlock) {
      state.spill_bytes = bit + next.bytes - kScanBlock;
      state.spill_class = static_cast<int>(kind);
    }
    left &= ~bits;
  }
}

WordScanner::WordScanner(std::string_view text, BlankRuns runs, Simd simd)
    : functions_(scan_functions(simd)),
      state_{.text = text.data(),
             .size = text.size(),
             .cut_runs = runs == BlankRuns::kCut ? UINT64_MAX : 0} {
  functions_.begin(state_);
}

void WordScanner::restart(size_t at) {
  state_ = {.text = state_.text, .size = state_.size, .cut_runs = state_.cut_runs, .at = at};
  functions_.begin(state_);
}

}  // namespace neox
