#include <array>
#include <bit>

#include "tokenizer/bpe_scan_blocks.h"

namespace neox {
namespace {

enum : uint8_t { kLetter = 1, kNumber = 2, kSpace = 4, kBlank = 8, kQuote = 16, kHigh = 32 };

constexpr std::array<uint8_t, 256> byte_kinds() {
  std::array<uint8_t, 256> kinds{};
  for (int c = 'a'; c <= 'z'; ++c) kinds[c] = kinds[c - 'a' + 'A'] = kLetter;
  for (int c = '0'; c <= '9'; ++c) kinds[c] = kNumber;
  for (int c = '\t'; c <= '\r'; ++c) kinds[c] = kSpace;
  for (int c = 128; c < 256; ++c) kinds[c] = kHigh;
  kinds[' '] = kSpace | kBlank;
  kinds['\''] = kQuote;
  return kinds;
}

constexpr std::array<uint8_t, 256> kKinds = byte_kinds();

struct Plain {
  static ByteClasses classify(const char* bytes) {
    ByteClasses found;
    for (size_t i = 0; i < kScanBlock; ++i) {
      uint64_t kind = kKinds[static_cast<uint8_t>(bytes[i])];
      found.letter |= (kind & 1) << i;
      found.number |= (kind >> 1 & 1) << i;
      found.space |= (kind >> 2 & 1) << i;
      found.blank |= (kind >> 3 & 1) << i;
      found.quote |= (kind >> 4 & 1) << i;
      found.high |= (kind >> 5 & 1) << i;
    }
    return found;
  }
  static uint32_t* append(uint64_t bits, uint32_t base, uint32_t* out) {
    for (; bits; bits &= bits - 1) *out++ = base + static_cast<uint32_t>(std::countr_zero(bits));
    return out;
  }
};

}  // namespace

const ScanFunctions& plain_scan() { return kScanFunctions<Plain>; }

}  // namespace neox
