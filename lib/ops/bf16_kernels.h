// Matrix products of bf16 with sums in float: by the tiles of AMX, by the dot products of
// AVX512-BF16 where these occupy the vector units fully (AMD from Zen 4 on), by AVX512-FP16, or in
// float by AVX-512 or AVX2.
// Operands are packed as the processor reads them: pairs of neighbours along the dimension that is
// summed over ("depth") in 32 bits.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace neox {

// bf16 [rows, depth], of which one of the strides is 1.
struct Bf16Matrix {
  const uint16_t* data = nullptr;
  int64_t rows = 0, depth = 0, row_stride = 0, depth_stride = 0;
  Bf16Matrix narrow(int64_t first, int64_t n) const {
    return {data + first * row_stride, n, depth, row_stride, depth_stride};
  }
  // So much depth, or what there is.
  Bf16Matrix narrow_depth(int64_t first, int64_t n) const {
    return {data + first * depth_stride, rows, std::min(n, depth - first), row_stride,
            depth_stride};
  }
};

constexpr int64_t kTileColumns = 32;  // of a product, that are computed at once

// Rows of a product, as pack_rows() has them: groups lie `group` apart.
struct PackedRows {
  const uint32_t* data = nullptr;
  int64_t group = 0;
};

// Columns of a product: as pack_columns() has them, in groups of kTileColumns, which lie `group`
// apart; or, of kernels in float, beside each other, with a group of kTileColumns: column n and
// pair p at data[p * pair + n].
struct PackedColumns {
  const uint32_t* data = nullptr;
  int64_t group = 0, pair = kTileColumns;
  const void* next = nullptr;  // as much memory, which is read after packed ones, if known
};

// Where a product goes: c [M, N], of float or bf16.
struct ProductSum {
  void* data = nullptr;
  int64_t stride = 0;
  bool half = false;            // bf16
  bool add = false;             // to what is there; float only
  bool transposed = false;      // c [N, M]
  const float* bias = nullptr;  // of c's columns, added; or null
  // The part of it that begins at row m and column n of the product.
  ProductSum at(int64_t m, int64_t n) const {
    if (transposed) std::swap(m, n);
    ProductSum part = *this;
    part.data = static_cast<char*>(data) + (m * stride + n) * (half ? 2 : 4);
    if (bias) part.bias = bias + n;
    return part;
  }
};

struct Bf16Softmax;

struct Bf16Kernels {
  const char* name;
  const Bf16Softmax* softmax;  // between two products
  int64_t tile_rows;           // of a product, that are computed at once
  bool wide_rows;              // numbers of rows take 32 bits: instructions for bf16 are not used
  int64_t scale_words = 0;     // of each row and each column, behind a packed group
  // Of sums that are in float, where these are not, with the same pairs_multiple; else null.
  const Bf16Kernels* in_float = nullptr;
  int64_t pairs_multiple;  // packed depths are padded to a multiple with zeros
  int64_t few_rows;        // up to so many rows of a, a product is sooner had transposed; 0: never
  int64_t few_row_bytes;   // of which, packed, so much meets all of b and stays in a near cache
  int64_t all_row_bytes;   // packed rows that meet columns as these are packed; 0: never
  bool outruns_memory;     // a large product is sooner computed again than kept
  // Of a large product, by how its rows lie.
  struct Blocks {
    int64_t row_bytes;     // packed rows that meet all columns while they stay in a near cache;
                           // 0: rows are not packed if multiply_unpacked() can read them
    int64_t column_bytes;  // packed columns that are kept for all rows
    int64_t depth = 0;     // that is summed at once, of a product in float; 0: all
  } along_depth, across_depth;

  // Groups of tile_rows rows, or of kTileColumns columns, zero where there are no rows and no
  // depth. `to` starts at 64 bytes and has room for padded_to(rows, tile_rows) *
  // row_words_of(depth) words, or padded_to(columns, kTileColumns) * column_words_of(depth).
  void (*pack_rows)(const Bf16Matrix& m, uint32_t* to);
  void (*pack_columns)(const Bf16Matrix& m, uint32_t* to);

  // c[m][n] = sum over the first so many pairs of a[m] b[n], M x N.
  void (*multiply_packed)(const PackedRows& a, const PackedColumns& b, int64_t pairs,
                          const ProductSum& c, int64_t M, int64_t N);

  // The same for all rows of a as they lie: depth lies consecutively and is a multiple of 2
  // pairs_multiple. c is transposed where along_depth.row_bytes is not 0. Null where few_rows is 0
  // and along_depth.row_bytes is not.
  void (*multiply_unpacked)(const Bf16Matrix& a, const PackedColumns& b, const ProductSum& c,
                            int64_t N);

  int64_t row_words(int64_t pairs) const { return pairs * (wide_rows ? 2 : 1) + scale_words; }
  const Bf16Kernels& of_attention() const { return in_float ? *in_float : *this; }
};

// Those that this processor can run, the fastest last.
std::vector<const Bf16Kernels*> all_bf16_kernels();
// The fastest; null where there are none: ATen knows processors other than x86 better. Tests put
// others in their place.
const Bf16Kernels*& bf16_kernels();

constexpr int64_t padded_to(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
inline int64_t tile_rows() { return bf16_kernels()->tile_rows; }
inline int64_t pairs_of(int64_t depth) {
  return padded_to((depth + 1) / 2, bf16_kernels()->pairs_multiple);
}
// Words of a packed row, and of a column.
inline int64_t row_words_of(int64_t depth) { return bf16_kernels()->row_words(pairs_of(depth)); }
inline int64_t column_words_of(int64_t depth) {
  return pairs_of(depth) + bf16_kernels()->scale_words;
}
inline void pack_rows(const Bf16Matrix& m, uint32_t* to) { bf16_kernels()->pack_rows(m, to); }
inline void pack_columns(const Bf16Matrix& m, uint32_t* to) { bf16_kernels()->pack_columns(m, to); }
inline void multiply_packed(const PackedRows& a, const PackedColumns& b, int64_t pairs,
                            const ProductSum& c, int64_t M, int64_t N) {
  bf16_kernels()->multiply_packed(a, b, pairs, c, M, N);
}

extern const Bf16Kernels kAvx2Bf16Kernels, kAvx512fBf16Kernels, kAvx512Bf16Kernels,
    kFp16Bf16Kernels, kAmxBf16Kernels;

}  // namespace neox
