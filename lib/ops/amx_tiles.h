// The tiles of AMX: eight, of up to 16 rows of up to 64 bytes.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

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

// Zeros that begin at 64 bytes. Of containers of the standard library, compiled for this kind of
// processor, the linker could take functions for other parts of the program.
template <class T>
class Room {
 public:
  explicit Room(int64_t n) {
    size_t bytes = (static_cast<size_t>(n) * sizeof(T) + 63) / 64 * 64;
    data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
    std::memset(static_cast<void*>(data_), 0, bytes);
  }
  ~Room() { std::free(data_); }
  Room(const Room&) = delete;
  T* data() const { return data_; }

 private:
  T* data_;
};

}  // namespace
}  // namespace neox
