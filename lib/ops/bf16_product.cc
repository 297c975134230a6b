#include "ops/bf16_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "base/error.h"
#include "ops/range.h"
#include "ops/team.h"

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

// Of n rows or columns, the last of which may be fewer.
int64_t groups_of(int64_t n, int64_t group) { return padded_to(n, group) / group; }

// f(part) for parts of n rows or columns, on the threads, each of at least so many whole groups,
// but for the end.
template <class F>
void each_part(int64_t n, int64_t group, int64_t groups_at_least, const F& f) {
  at::parallel_for(0, groups_of(n, group), groups_at_least, [&](int64_t from, int64_t until) {
    f(Range{from * group, std::min(until * group, n)});
  });
}

Bf16Matrix part_of(const Bf16Matrix& m, Range rows) {
  return m.narrow(rows.from, rows.end - rows.from);
}

void pack_all_columns(const Bf16Matrix& b, uint32_t* to) {
  int64_t words = column_words_of(b.depth);
  each_part(b.rows, kTileColumns, kGroupsAtLeast,
            [&](Range part) { pack_columns(part_of(b, part), to + part.from * words); });
}

void pack_all_rows(const Bf16Matrix& a, uint32_t* to) {
  int64_t words = row_words_of(a.depth);
  each_part(a.rows, tile_rows(), kGroupsAtLeast,
            [&](Range part) { pack_rows(part_of(a, part), to + part.from * words); });
}

bool can_stay_unpacked(const Bf16Matrix& rows) {
  return rows.depth_stride == 1 && rows.depth % (2 * bf16_kernels()->pairs_multiple) == 0;
}

// All rows of a in the range by the packed columns, some rows, which stay in the core's cache, at a
// time. Of one thread.
void multiply_rows(const Bf16Matrix& a, Range rows, const uint32_t* columns, int64_t N,
                   const ProductSum& c) {
  PackedColumns b{columns, column_words_of(a.depth) * kTileColumns};
  if (blocks_of(a).row_bytes == 0 && can_stay_unpacked(a))
    return bf16_kernels()->multiply_unpacked(part_of(a, rows), b, c.at(rows.from, 0), N);
  int64_t words = row_words_of(a.depth),
          block = std::min(block_of(blocks_of(a).row_bytes, words, tile_rows()),
                           padded_to(rows.end - rows.from, tile_rows()));
  Tensor room = room_for_pairs(block * words);
  for (int64_t m = rows.from; m < rows.end; m += block) {
    int64_t n = std::min(block, rows.end - m);
    pack_rows(a.narrow(m, n), pairs_in(room));
    multiply_packed({pairs_in(room), words * tile_rows()}, b, pairs_of(a.depth), c.at(m, 0), n, N);
  }
}

// Of so many groups, those of the thread that has most.
int64_t most_of_a_thread(int64_t groups) { return (groups + threads_here() - 1) / threads_here(); }

void multiply_columns(const Bf16Matrix& a, const uint32_t* columns, int64_t N,
                      const ProductSum& c) {
  int64_t row_groups = groups_of(a.rows, tile_rows()), column_groups = groups_of(N, kTileColumns),
          words = column_words_of(a.depth);
  // Packing a row of a costs about as much as 8 columns; by columns each thread packs all rows.
  int64_t packing = can_stay_unpacked(a) ? 0 : 8;
  int64_t by_rows = most_of_a_thread(row_groups) * tile_rows() * (N + packing),
          by_columns = a.rows * (most_of_a_thread(column_groups) * kTileColumns + packing);
  if (by_rows <= by_columns)
    return each_part(a.rows, tile_rows(), 1,
                     [&](Range rows) { multiply_rows(a, rows, columns, N, c); });
  each_part(N, kTileColumns, 1, [&](Range part) {
    multiply_rows(a, {0, a.rows}, columns + part.from * words, part.end - part.from,
                  c.at(0, part.from));
  });
}

// Packing b would cost more than reading it for each block of a.
bool takes_few_rows(const Bf16Matrix& a, const Bf16Matrix& b) {
  return a.rows <= bf16_kernels()->few_rows && can_stay_unpacked(b);
}

int64_t few_rows_at_once(int64_t depth) {
  return block_of(bf16_kernels()->few_row_bytes, column_words_of(depth), kTileColumns);
}

// Its transposed, so that the larger matrix is the one that need not be packed.
void multiply_few_rows(const Bf16Matrix& a, const Bf16Matrix& b, ProductSum c) {
  int64_t block = few_rows_at_once(a.depth);
  c.transposed = true;
  for (int64_t m = 0; m < a.rows; m += block)
    FewRows(a.narrow(m, std::min(block, a.rows - m))).multiply(b, c.at(0, m));
}

// So many columns, packed, stay in a cache while all rows of a meet them.
int64_t columns_at_once(const Bf16Matrix& a) {
  return block_of(blocks_of(a).column_bytes, column_words_of(a.depth), kTileColumns);
}

// By all packed columns.
void multiply_all(const Bf16Matrix& a, const uint32_t* columns, int64_t N, const ProductSum& c) {
  int64_t words = column_words_of(a.depth), block = columns_at_once(a);
  for (int64_t n = 0; n < N; n += block)
    multiply_columns(a, columns + n * words, std::min(block, N - n), c.at(0, n));
}

int64_t words_of_rows(const Bf16Matrix& a) {
  return padded_to(a.rows, tile_rows()) * row_words_of(a.depth);
}

// All of a, packed, stays in a far cache, and few of b's columns in a near one, which are enough
// for all threads.
bool takes_few_columns(const Bf16Matrix& a, const Bf16Matrix& b) {
  int64_t groups = groups_of(b.rows, kTileColumns);
  return words_of_rows(a) * 4 <= bf16_kernels()->all_row_bytes &&
         4 * most_of_a_thread(groups) * threads_here() <= 5 * groups;
}

// Of b [N, K] in one piece of memory, what lies behind the first rows.
const void* behind(const Bf16Matrix& b, int64_t rows) {
  bool one_piece = b.depth_stride == 1 && b.row_stride == b.depth;
  return one_piece ? b.data + rows * b.depth : nullptr;
}

// Each little of b is packed where all rows meet it, while the next comes from the memory.
void multiply_few_columns(const Bf16Matrix& a, const Bf16Matrix& b, const ProductSum& c) {
  constexpr int64_t kColumns = 2 * kTileColumns;
  int64_t words = column_words_of(a.depth);
  Tensor rows = room_for_pairs(words_of_rows(a));
  pack_all_rows(a, pairs_in(rows));
  each_part(b.rows, kTileColumns, 1, [&](Range part) {
    Tensor room = room_for_pairs(kColumns * words);
    PackedColumns columns{pairs_in(room), words * kTileColumns};
    for (int64_t n = part.from; n < part.end; n += kColumns) {
      int64_t count = std::min(kColumns, part.end - n);
      pack_columns(b.narrow(n, count), pairs_in(room));
      columns.next = behind(b, n + count);
      multiply_packed({pairs_in(rows), row_words_of(a.depth) * tile_rows()}, columns,
                      pairs_of(a.depth), c.at(0, n), a.rows, count);
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
  int64_t words = column_words_of(a.depth), block = columns_at_once(a);
  Tensor room = room_for_pairs(std::min(block, padded_to(b.rows, kTileColumns)) * words);
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
  RECORD_FUNCTION("neox::product", std::vector<c10::IValue>({a, b}));
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

bool FewRows::take(const Tensor& x, const Tensor& w) {
  if (!bf16_multiplies(x) || !bf16_multiplies(w)) return false;
  return x.size(0) <= few_rows_at_once(x.size(1)) && takes_few_rows(bf16_matrix(x), bf16_matrix(w));
}

FewRows::FewRows(const Bf16Matrix& x)
    : M_(x.rows),
      words_(column_words_of(x.depth)),
      packed_(room_for_pairs(padded_to(M_, kTileColumns) * words_)) {
  pack_columns(x, pairs_in(packed_));
}

void FewRows::multiply(const Bf16Matrix& w, const ProductSum& c) const {
  each_part(w.rows, tile_rows(), 1, [&](Range part) {
    bf16_kernels()->multiply_unpacked(part_of(w, part), {pairs_in(packed_), words_ * kTileColumns},
                                      c.at(part.from, 0), M_);
  });
}

void FewRows::product_out(const Tensor& y, const Tensor& w, const Tensor& bias) const {
  RECORD_FUNCTION("neox::product", std::vector<c10::IValue>({y, w}));
  ProductSum sum = sum_in(y);
  sum.transposed = true;
  if (bias.defined()) sum.bias = bias.const_data_ptr<float>();
  multiply(bf16_matrix(w), sum);
}

PackedFactor::PackedFactor(const Tensor& b)
    : N_(b.size(0)),
      K_(b.size(1)),
      packed_(room_for_pairs(padded_to(N_, kTileColumns) * column_words_of(K_))) {
  Tensor columns = readable(b);
  pack_all_columns(bf16_matrix(columns), pairs_in(packed_));
}

void PackedFactor::product_out(const Tensor& y, const Tensor& a) const {
  RECORD_FUNCTION("neox::packed_product", std::vector<c10::IValue>({y, a}));
  check_sizes(y, a, {N_, K_});
  Tensor rows = readable(a);
  multiply_all(bf16_matrix(rows), pairs_in(packed_), N_, sum_in(y));
}

}  // namespace neox
