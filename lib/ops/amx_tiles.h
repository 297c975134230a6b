// The tiles of AMX: eight, of up to 16 rows of up to 64 bytes.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace neox {
namespace {  // each file that is compiled for AMX has its own

// How each tile is laid out.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The thread's tiles, for as long as this lives.
class Tiles {
 public:
  explicit Tiles(const TileShapes& shapes) {
    asm volatile("" : : "r"(&shapes) : "memory");  // GCC 12 takes 8 of its bytes for read
    _tile_loadconfig(&shapes);
  }
  Tiles(const Tiles&) = delete;
  ~Tiles() { _tile_release(); }
};

}  // namespace
}  // namespace neox
