// Weights into 12 bits and back (ops/packed_weights.h), over the vectors of one instruction set.
// The file that includes it defines, in an anonymous namespace, Bytes and Words and what
// row_packing_avx512.h has for them.
#include <cstdint>
#include <cstring>

#include "ops/row_kernels.h"

namespace neox {
namespace {

constexpr int64_t kUnit = 128, kUnitBytes = 192;  // two times the codes of 64 numbers, and the rest
constexpr int kVector = sizeof(Bytes), kPieces = 64 / kVector;
// 128 numbers; of each half, the first kPieces vectors, and the others.
typedef Words Numbers[4 * kPieces];

inline Bytes every(uint8_t x) { return Bytes{} + x; }

// Codes of exponents; of those without one 255.
class Codes {
 public:
  explicit Codes(const uint8_t* code_of) {
    for (int high = 0; high < 16; ++high) {
      bool some = false;
      for (int low = 0; low < 16; ++low) some = some || code_of[16 * high + low] != 255;
      if (!some) continue;
      high_[count_] = every(static_cast<uint8_t>(high));
      table_[count_++] = table_of(code_of + 16 * high);
    }
  }
  // Of piece j of half a unit. Bytes are in the order of narrow().
  Bytes of(const Words* half, int j) const {
    auto exponents = [](Words x) { return x >> 7 & 255; };
    Bytes all = narrow(exponents(half[j]), exponents(half[j + kPieces])), codes = every(255);
    for (int i = 0; i < count_; ++i)
      codes = where_equal(all >> 4, high_[i], look_up(table_[i], all & 15), codes);
    return codes;
  }

 private:
  Bytes high_[16], table_[16];  // of upper halves that some exponents with codes have
  int count_ = 0;
};

// How many of n numbers, a multiple of 128, have no code.
inline int64_t count_rare(const uint16_t* numbers, int64_t n, const uint8_t* code_of) {
  Codes codes(code_of);
  int64_t count = 0;
  for (int64_t k = 0; k < n; k += 64) {
    Words half[2 * kPieces];
    std::memcpy(&half, numbers + k, sizeof half);
    for (int j = 0; j < kPieces; ++j) count += __builtin_popcountll(top_bits(codes.of(half, j)));
  }
  return count;
}

// Writes a group's units, and its rare weights in their order.
class Packer {
 public:
  explicit Packer(const PackedGroup& group)
      : codes_(group.code_of), to_(group.codes), rare_(group.rare) {}
  // The next 128 numbers: of this tile, in which the first one has this place.
  void add(const Words* numbers, uint32_t tile, int first) {
    for (int h = 0; h < 2; ++h)
      for (int j = 0; j < kPieces; ++j) {
        const Words* half = numbers + 2 * kPieces * h;
        Bytes codes = codes_.of(half, j);
        uint8_t *two = to_ + kVector * j, *rest = to_ + 64 + 64 * h + kVector * j;
        store_bytes(two, h ? load_bytes(two) | codes << 4 : codes & 15);
        store_bytes(rest, narrow(others(half[j]), others(half[j + kPieces])));
        add_rare(top_bits(codes), half, j, tile, first + 64 * h);
      }
    to_ += kUnitBytes;
  }
  void end() { *rare_ = {~uint32_t{0}, 0, 0}; }

 private:
  // Signs and mantissas.
  static Words others(Words x) { return (x >> 8 & 128) | (x & 127); }
  void add_rare(uint64_t which, const Words* half, int j, uint32_t tile, int first) {
    for (; which != 0; which &= which - 1) {
      // narrow() takes eight numbers of each vector in turn.
      int i = __builtin_ctzll(which), in_vector = i / 16 * 8 + i % 8;
      int vector = i % 16 < 8 ? j : j + kPieces;
      uint16_t value = half[vector][in_vector];
      *rare_++ = {tile, static_cast<uint16_t>(first + kVector / 2 * vector + in_vector), value};
    }
  }

  Codes codes_;
  uint8_t* to_;
  RareWeight* rare_;
};

// A group row by row, of which 128 columns are a tile.
inline void pack_rows(const PackedGroup& group) {
  Packer packer(group);
  auto tiles = static_cast<uint32_t>(kPackedRows * group.columns / kUnit);
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    Numbers numbers;
    std::memcpy(&numbers, group.rows + tile * kUnit, sizeof numbers);
    packer.add(numbers, tile, 0);
  }
  packer.end();
}

// How codes become numbers.
class Unpacking {
 public:
  explicit Unpacking(const PackedWeights& w) : high_(table_of(w.high)), low_(table_of(w.low)) {}
  [[gnu::always_inline]] void unit(const uint8_t* from, Numbers& to) const {
#pragma GCC unroll 2
    for (int j = 0; j < kPieces; ++j) {
      Bytes two = load_bytes(from + kVector * j);
      part(two & 15, from + 64 + kVector * j, to + j);
      part(reinterpret_cast<Bytes>(reinterpret_cast<Words>(two) >> 4) & 15,
           from + 128 + kVector * j, to + 2 * kPieces + j);
    }
  }

 private:
  [[gnu::always_inline]] void part(Bytes codes, const uint8_t* rest, Words* to) const {
    Bytes others = load_bytes(rest);
    Bytes above = with_bits(look_up(high_, codes), others, every(0x80)),
          below = with_bits(look_up(low_, codes), others, every(0x7f));
    to[0] = first_words(below, above);
    to[kPieces] = last_words(below, above);
  }

  Bytes high_, low_;
};

// What is used `distance` bytes behind a unit is asked for.
[[gnu::always_inline]] inline void ask_ahead(const uint8_t* unit, int64_t distance) {
  for (int64_t line = 0; line < kUnitBytes; line += 64)
    __builtin_prefetch(unit + distance + line, 0, 3);
}

}  // namespace
}  // namespace neox
