// Of each AArch64.
#include <arm_neon.h>

#include "tokenizer/bpe_scan_blocks.h"
#include "tokenizer/bpe_scan_half_bytes.h"

namespace neox {
namespace {

struct Neon {
  uint8x16_t of[4];  // 64 bytes

  // A bit for each byte, of which all are ones or none.
  uint64_t bits() const {
    const uint8x16_t weight = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    auto weighed = [&](int i) { return vandq_u8(of[i], weight); };
    uint8x16_t sum =
        vpaddq_u8(vpaddq_u8(weighed(0), weighed(1)), vpaddq_u8(weighed(2), weighed(3)));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
  }
  template <class F>
  Neon each(F f) const {
    return {{f(of[0]), f(of[1]), f(of[2]), f(of[3])}};
  }

  static ByteClasses classify(const char* bytes) {
    const auto* from = reinterpret_cast<const uint8_t*>(bytes);
    Neon all{{vld1q_u8(from), vld1q_u8(from + 16), vld1q_u8(from + 32), vld1q_u8(from + 48)}};
    const uint8x16_t by_low = vld1q_u8(reinterpret_cast<const uint8_t*>(kByLow)),
                     by_high = vld1q_u8(reinterpret_cast<const uint8_t*>(kByHigh));
    Neon kinds = all.each([&](uint8x16_t v) {
      uint8x16_t low = vqtbl1q_u8(by_low, vandq_u8(v, vdupq_n_u8(15)));
      return vandq_u8(low, vqtbl1q_u8(by_high, vshrq_n_u8(v, 4)));
    });
    auto bits = [&](int some) {
      return kinds.each([&](uint8x16_t k) { return vtstq_u8(k, vdupq_n_u8(some)); }).bits();
    };
    Neon high = all.each([](uint8x16_t v) { return vcltzq_s8(vreinterpretq_s8_u8(v)); });
    return classes_of(bits, high.bits());
  }
  // Four at a time, so that the branch is taken as often in most blocks.
  static uint32_t* append(uint64_t bits, uint32_t base, uint32_t* out) {
    uint32_t* end = out + __builtin_popcountll(bits);
    for (; out < end; out += 4)
      for (int i = 0; i < 4; ++i) {
        out[i] = base + static_cast<uint32_t>(bits ? __builtin_ctzll(bits) : 0);
        bits &= bits - 1;
      }
    return end;
  }
};

}  // namespace

const ScanFunctions& neon_scan() { return kScanFunctions<Neon>; }

}  // namespace neox
