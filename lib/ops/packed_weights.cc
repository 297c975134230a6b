#include "ops/packed_weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace neox {
namespace {

// More would cost more than they save: of so many weights one.
constexpr int64_t kRareShare = 512;

int64_t most_rare(const WeightMatrix& w) { return kPackedRows * w.columns / kRareShare; }
int64_t rare_bytes(const WeightMatrix& w) {
  return (static_cast<int64_t>(sizeof(RareWeight)) * (most_rare(w) + 1) + 63) / 64 * 64;
}
int64_t group_bytes(const WeightMatrix& w) {
  return rare_bytes(w) + kPackedRows * w.columns * 3 / 2;
}

// How often each exponent is there, by some of the rows. Zeros always count.
std::array<int64_t, 256> exponents_of(const WeightMatrix& w) {
  std::array<int64_t, 256> counts{};
  const auto* data = static_cast<const uint16_t*>(w.data);
  constexpr int64_t kEnough = 1 << 17;  // numbers
  int64_t step = w.rows * w.columns / kEnough | 1;
  for (int64_t row = 0; row < w.rows; row += step)
    for (int64_t k = 0; k < w.columns; ++k) ++counts[data[row * w.columns + k] >> 7 & 255];
  counts[0] = w.rows * w.columns;
  return counts;
}

}  // namespace

bool PackedMatrix::fits(const RowKernels& kernels, const WeightMatrix& w) {
  int64_t multiple = kernels.packed_columns;
  return multiple > 0 && w.type == WeightType::kBfloat16 && w.rows > 0 &&
         w.rows % kPackedRows == 0 && w.columns % multiple == 0;
}

int64_t PackedMatrix::bytes_of(const WeightMatrix& w) {
  return w.rows / kPackedRows * group_bytes(w);
}

PackedMatrix::PackedMatrix(const RowKernels& kernels, const WeightMatrix& w)
    : kernels_(kernels), w_(w), memory_(at::empty({bytes_of(w)}, at::kByte)) {
  packed_ = {.groups = memory_.const_data_ptr<uint8_t>(),
             .group_bytes = group_bytes(w),
             .rare_bytes = rare_bytes(w)};
  code_of_.fill(255);
  std::array<int64_t, 256> counts = exponents_of(w);
  std::array<uint8_t, 256> order;
  std::iota(order.begin(), order.end(), uint8_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](uint8_t e) { return counts[e]; });
  for (uint8_t code = 0; code < 16; ++code) {
    uint8_t exponent = order[code];
    code_of_[exponent] = code;
    packed_.high[code] = static_cast<uint8_t>(exponent >> 1);
    packed_.low[code] = static_cast<uint8_t>((exponent & 1) << 7);
  }
}

void PackedMatrix::pack(int64_t from, int64_t to) {
  for (int64_t g = from; g < to && !failed_; ++g) {
    uint8_t* group = memory_.mutable_data_ptr<uint8_t>() + g * packed_.group_bytes;
    const auto* rows = static_cast<const uint16_t*>(w_.data) + g * kPackedRows * w_.columns;
    bool few = kernels_.pack({.rows = rows,
                              .columns = w_.columns,
                              .code_of = code_of_.data(),
                              .codes = group + packed_.rare_bytes,
                              .rare = reinterpret_cast<RareWeight*>(group),
                              .most_rare = most_rare(w_)});
    if (!few) failed_ = true;
  }
}

}  // namespace neox
