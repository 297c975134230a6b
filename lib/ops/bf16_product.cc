#include "ops/bf16_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "ops/range.h"

namespace neox {
namespace {

using at::Tensor;

constexpr int64_t kGroupsAtLeast = 2;  // that a thread packs

const Bf16Kernels::Blocks& blocks_of(const Bf16Matrix& rows) {
  return rows.depth_stride == 1 ? bf16_kernels()->along_depth : bf16_kernels()->across_depth;
}

int64_t block_of(int64_t bytes, int64_t words, int64_t tile) {
  return std::max(tile, bytes / (words * 4) / tile * tile);
}

void pack_all_columns(const Bf16Matrix& b, uint32_t* to) {
  int64_t groups = padded_to(b.rows, kTileColumns) / kTileColumns, pairs = pairs_of(b.depth);
  at::parallel_for(0, groups, kGroupsAtLeast, [&](int64_t from, int64_t until) {
    int64_t first = from * kTileColumns, end = std::min(until * kTileColumns, b.rows);
    pack_columns(b.narrow(first, end - first), to + first * pairs);
  });
}

void pack_all_rows(const Bf16Matrix& a, uint32_t* to) {
  int64_t groups = padded_to(a.rows, tile_rows()) / tile_rows(), words = row_words_of(a.depth);
  at::parallel_for(0, groups, kGroupsAtLeast, [&](int64_t from, int64_t until) {
    int64_t first = from * tile_rows(), end = std::min(until * tile_rows(), a.rows);
    pack_rows(a.narrow(first, end - first), to + first * words);
  });
}

bool can_stay_unpacked(const Bf16Matrix& rows) {
  return rows.depth_stride == 1 && rows.depth % (2 * bf16_kernels()->pairs_multiple) == 0;
}

// All rows of a in the range by the packed columns, some rows, which stay in the core's cache, at a
// time. Of one thread.
void multiply_rows(const Bf16Matrix& a, Range rows, const uint32_t* columns, int64_t N,
                   const ProductSum& c) {
  int64_t pairs = pairs_of(a.depth);
  if (blocks_of(a).row_bytes == 0 && can_stay_unpacked(a))
    return bf16_kernels()->multiply_unpacked(a.narrow(rows.from, rows.end - rows.from),
                                             {columns, pairs * kTileColumns}, c.at(rows.from, 0),
                                             N);
  int64_t words = row_words_of(a.depth),
          block = std::min(block_of(blocks_of(a).row_bytes, words, tile_rows()),
                           padded_to(rows.end - rows.from, tile_rows()));
  Tensor room = room_for_pairs(block * words);
  for (int64_t m = rows.from; m < rows.end; m += block) {
    int64_t n = std::min(block, rows.end - m);
    pack_rows(a.narrow(m, n), pairs_in(room));
    multiply_packed({pairs_in(room), words * tile_rows()}, {columns, pairs * kTileColumns}, pairs,
                    c.at(m, 0), n, N);
  }
}

int64_t threads_here() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

// Of so many groups, those of the thread that has most.
int64_t most_of_a_thread(int64_t groups) { return (groups + threads_here() - 1) / threads_here(); }

void multiply_columns(const Bf16Matrix& a, const uint32_t* columns, int64_t N,
                      const ProductSum& c) {
  int64_t row_groups = padded_to(a.rows, tile_rows()) / tile_rows(),
          column_groups = padded_to(N, kTileColumns) / kTileColumns, pairs = pairs_of(a.depth);
  // Packing a row of a costs about as much as 8 columns; by columns each thread packs all rows.
  int64_t packing = can_stay_unpacked(a) ? 0 : 8;
  int64_t by_rows = most_of_a_thread(row_groups) * tile_rows() * (N + packing),
          by_columns = a.rows * (most_of_a_thread(column_groups) * kTileColumns + packing);
  if (by_rows <= by_columns) {
    at::parallel_for(0, row_groups, 1, [&](int64_t from, int64_t until) {
      Range rows{from * tile_rows(), std::min(until * tile_rows(), a.rows)};
      multiply_rows(a, rows, columns, N, c);
    });
    return;
  }
  at::parallel_for(0, column_groups, 1, [&](int64_t from, int64_t until) {
    int64_t first = from * kTileColumns, end = std::min(until * kTileColumns, N);
    multiply_rows(a, {0, a.rows}, columns + first * pairs, end - first, c.at(0, first));
  });
}

// Packing b would cost more than reading it for each block of a.
bool takes_few_rows(const Bf16Matrix& a, const Bf16Matrix& b) {
  return a.rows <= bf16_kernels()->few_rows && can_stay_unpacked(b);
}

// Its transposed, so that the larger matrix is the one that need not be packed.
void multiply_few_rows(const Bf16Matrix& a, const Bf16Matrix& b, ProductSum c) {
  int64_t pairs = pairs_of(a.depth),
          block = block_of(bf16_kernels()->few_row_bytes, pairs, kTileColumns),
          groups = padded_to(b.rows, tile_rows()) / tile_rows();
  Tensor room = room_for_pairs(std::min(block, padded_to(a.rows, kTileColumns)) * pairs);
  c.transposed = true;
  for (int64_t m = 0; m < a.rows; m += block) {
    int64_t rows = std::min(block, a.rows - m);
    pack_columns(a.narrow(m, rows), pairs_in(room));
    at::parallel_for(0, groups, 1, [&](int64_t from, int64_t until) {
      int64_t first = from * tile_rows(), end = std::min(until * tile_rows(), b.rows);
      bf16_kernels()->multiply_unpacked(b.narrow(first, end - first),
                                        {pairs_in(room), pairs * kTileColumns}, c.at(first, m),
                                        rows);
    });
  }
}

// So many columns, packed, stay in a cache while all rows of a meet them.
int64_t columns_at_once(const Bf16Matrix& a) {
  return block_of(blocks_of(a).column_bytes, pairs_of(a.depth), kTileColumns);
}

// By all packed columns.
void multiply_all(const Bf16Matrix& a, const uint32_t* columns, int64_t N, const ProductSum& c) {
  int64_t pairs = pairs_of(a.depth), block = columns_at_once(a);
  for (int64_t n = 0; n < N; n += block)
    multiply_columns(a, columns + n * pairs, std::min(block, N - n), c.at(0, n));
}

// All of a, packed, stays in a far cache, and few of b's columns in a near one, which are enough
// for all threads.
bool takes_few_columns(const Bf16Matrix& a, const Bf16Matrix& b) {
  int64_t groups = padded_to(b.rows, kTileColumns) / kTileColumns;
  bool even = 4 * most_of_a_thread(groups) * threads_here() <= 5 * groups;
  return even && padded_to(a.rows, tile_rows()) * row_words_of(a.depth) * 4 <=
                     bf16_kernels()->all_row_bytes;
}

// Of b [N, K] in one piece of memory, what lies behind the first rows.
const void* behind(const Bf16Matrix& b, int64_t rows) {
  bool one_piece = b.depth_stride == 1 && b.row_stride == b.depth;
  return one_piece ? b.data + rows * b.depth : nullptr;
}

// Each little of b is packed where all rows meet it, while the next comes from the memory.
void multiply_few_columns(const Bf16Matrix& a, const Bf16Matrix& b, const ProductSum& c) {
  constexpr int64_t kColumns = 2 * kTileColumns;
  int64_t pairs = pairs_of(a.depth), words = row_words_of(a.depth),
          groups = padded_to(b.rows, kTileColumns) / kTileColumns;
  Tensor rows = room_for_pairs(padded_to(a.rows, tile_rows()) * words);
  pack_all_rows(a, pairs_in(rows));
  at::parallel_for(0, groups, 1, [&](int64_t from, int64_t until) {
    Tensor room = room_for_pairs(kColumns * pairs);
    PackedColumns columns{pairs_in(room), pairs * kTileColumns};
    int64_t end = std::min(until * kTileColumns, b.rows);
    for (int64_t n = from * kTileColumns; n < end; n += kColumns) {
      int64_t count = std::min(kColumns, end - n);
      pack_columns(b.narrow(n, count), pairs_in(room));
      columns.next = behind(b, n + count);
      multiply_packed({pairs_in(rows), words * tile_rows()}, columns, pairs, c.at(0, n), a.rows,
                      count);
    }
  });
}

// Deep products in float are added up over parts of the depth: of less depth, more rows stay in a
// near cache.
int64_t depth_at_once(const Bf16Matrix& a, const ProductSum& c) {
  int64_t most = blocks_of(a).depth;
  if (most == 0 || c.half || a.depth < 3 * most) return a.depth;
  int64_t parts = (a.depth + most - 1) / most;
  return padded_to((a.depth + parts - 1) / parts, 2 * bf16_kernels()->pairs_multiple);
}

void multiply(const Bf16Matrix& a, const Bf16Matrix& b, const ProductSum& c) {
  if (int64_t part = depth_at_once(a, c); part < a.depth) {
    ProductSum sum = c;
    for (int64_t k = 0; k < a.depth; k += part, sum.add = true, sum.bias = nullptr)
      multiply(a.narrow_depth(k, part), b.narrow_depth(k, part), sum);
    return;
  }
  if (takes_few_rows(a, b)) return multiply_few_rows(a, b, c);
  if (takes_few_columns(a, b)) return multiply_few_columns(a, b, c);
  int64_t pairs = pairs_of(a.depth), block = columns_at_once(a);
  Tensor room = room_for_pairs(std::min(block, padded_to(b.rows, kTileColumns)) * pairs);
  for (int64_t n = 0; n < b.rows; n += block) {
    int64_t columns = std::min(block, b.rows - n);
    pack_all_columns(b.narrow(n, columns), pairs_in(room));
    multiply_columns(a, pairs_in(room), columns, c.at(0, n));
  }
}

// Rows or depth lie consecutively in it.
Tensor readable(const Tensor& x) {
  return x.stride(1) == 1 || x.stride(0) == 1 ? x : x.contiguous();
}

void check_sizes(const Tensor& y, const Tensor& a, at::IntArrayRef b) {
  check(y.stride(1) == 1 && a.size(1) == b[1] && y.size(0) == a.size(0) && y.size(1) == b[0],
        "a product of ", a.sizes(), " and ", b, " into ", y.sizes());
}

ProductSum sum_in(const Tensor& y) {
  return {.data = y.mutable_data_ptr(),
          .stride = y.stride(0),
          .half = y.scalar_type() == at::kBFloat16};
}

void run(const Tensor& a, const Tensor& b, const Tensor& bias, ProductSum sum) {
  Tensor rows = readable(a), columns = readable(b), wide = bias;
  if (bias.defined()) {
    wide = bias.detach().to(at::kFloat).contiguous();
    sum.bias = wide.const_data_ptr<float>();
  }
  multiply(bf16_matrix(rows), bf16_matrix(columns), sum);
}

}  // namespace

bool bf16_multiplies(const Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kBFloat16 && bf16_kernels();
}

Bf16Matrix bf16_matrix(const Tensor& x) {
  return {static_cast<const uint16_t*>(x.const_data_ptr()), x.size(0), x.size(1), x.stride(0),
          x.stride(1)};
}

Tensor room_for_pairs(int64_t n) { return at::empty({n}, at::kInt); }

void bf16_product_out(const Tensor& y, const Tensor& a, const Tensor& b, const Tensor& bias) {
  check_sizes(y, a, b.sizes());
  run(a, b, bias, sum_in(y));
}

void add_bf16_product(const Tensor& y, const Tensor& a, const Tensor& b, const Tensor& bias) {
  check_sizes(y, a, b.sizes());
  check(y.scalar_type() == at::kFloat, "a product of bf16 is added to float, not to ",
        y.scalar_type());
  ProductSum sum = sum_in(y);
  sum.add = true;
  run(a, b, bias, sum);
}

PackedFactor::PackedFactor(const Tensor& b)
    : N_(b.size(0)),
      K_(b.size(1)),
      packed_(room_for_pairs(padded_to(N_, kTileColumns) * pairs_of(K_))) {
  Tensor columns = readable(b);
  pack_all_columns(bf16_matrix(columns), pairs_in(packed_));
}

void PackedFactor::product_out(const Tensor& y, const Tensor& a) const {
  check_sizes(y, a, {N_, K_});
  Tensor rows = readable(a);
  multiply_all(bf16_matrix(rows), pairs_in(packed_), N_, sum_in(y));
}

}  // namespace neox
