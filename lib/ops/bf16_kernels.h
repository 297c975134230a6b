// Matrix products of bf16 with sums in float, by the dot products of AVX512-BF16, for processors
// whose vector units they occupy fully (AMD from Zen 4 on). Operands are packed as the processor
// reads them: pairs of neighbours along the dimension that is summed over ("depth") in 32 bits.
#pragma once
#include <cstdint>

namespace neox {

// Whether this processor has the instructions; the functions below must not be called elsewhere.
bool has_bf16_kernels();

// Tiles of a product: packed operands are groups of so many rows and of so many columns.
constexpr int64_t kTileRows = 8, kTileColumns = 32;

// bf16 [rows, depth], of which one of the strides is 1.
struct Bf16Matrix {
  const uint16_t* data = nullptr;
  int64_t rows = 0, depth = 0, row_stride = 0, depth_stride = 0;
  Bf16Matrix narrow(int64_t first, int64_t n) const {
    return {data + first * row_stride, n, depth, row_stride, depth_stride};
  }
};

constexpr int64_t pairs_of(int64_t depth) { return (depth + 1) / 2; }
constexpr int64_t padded_to(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Groups [rows / group][pairs][group], zero where there are no rows and no depth. `to` starts at 64
// bytes and has room for padded_to(rows, group) * pairs.
void pack_rows(const Bf16Matrix& m, uint32_t* to);     // groups of kTileRows
void pack_columns(const Bf16Matrix& m, uint32_t* to);  // groups of kTileColumns

// Rows of a product: row r and pair p at data[r / kTileRows * group + p * pair + r % kTileRows].
struct PackedRows {
  const uint32_t* data = nullptr;
  int64_t group = 0, pair = kTileRows;
};

// Columns of a product, as pack_columns() has them: groups lie `group` apart.
struct PackedColumns {
  const uint32_t* data = nullptr;
  int64_t group = 0;
};

// Where a product goes: c [M, N], of float or bf16.
struct ProductSum {
  void* data = nullptr;
  int64_t stride = 0;
  bool half = false;            // bf16
  bool add = false;             // to what is there; float only
  const float* bias = nullptr;  // [N], added; or null
  // The part of it that begins at row m and column n.
  ProductSum at(int64_t m, int64_t n) const {
    ProductSum part = *this;
    part.data = static_cast<char*>(data) + (m * stride + n) * (half ? 2 : 4);
    if (bias) part.bias = bias + n;
    return part;
  }
};

// c[m][n] = sum over the first so many pairs of a[m] b[n], M x N.
void multiply_packed(const PackedRows& a, const PackedColumns& b, int64_t pairs,
                     const ProductSum& c, int64_t M, int64_t N);

// The same for a product of few rows, such as a prompt's: its transposed, so that the larger matrix
// is the one that need not be packed. c[n][m] = sum over a[m] b[n], for all rows of a and N of b;
// the depth of a lies consecutively and is even.
void multiply_unpacked(const Bf16Matrix& a, const PackedColumns& b, const ProductSum& c, int64_t N);

}  // namespace neox
