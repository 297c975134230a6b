// Positions, rows or columns from one on up to another.
#pragma once
#include <cstdint>

namespace neox {

struct Range {
  int64_t from, end;
  bool empty() const { return from >= end; }
  bool has(int64_t i) const { return i >= from && i < end; }
};

}  // namespace neox
