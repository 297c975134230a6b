#include "ops/packed_weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

namespace neox {
namespace {

// More would cost more than they save: of so many weights one.
constexpr int64_t kRareShare = 256;

int64_t code_bytes(const WeightMatrix& w) { return kPackedRows * w.columns * 3 / 2; }

// In units of 64 bytes.
int64_t units(int64_t bytes) { return (bytes + 63) / 64; }

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
  auto rare = w.rows * w.columns / kRareShare * static_cast<int64_t>(sizeof(RareWeight));
  return w.rows / kPackedRows * (code_bytes(w) + 64) + rare;
}

PackedMatrix::PackedMatrix(const RowKernels& kernels, const WeightMatrix& w)
    : kernels_(kernels), w_(w), places_(static_cast<size_t>(num_groups())) {
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

const uint16_t* PackedMatrix::rows_of(int64_t group) const {
  return static_cast<const uint16_t*>(w_.data) + group * kPackedRows * w_.columns;
}

void PackedMatrix::count(int64_t from, int64_t to) {
  for (int64_t g = from; g < to; ++g)
    places_[static_cast<size_t>(g)].rare = static_cast<uint32_t>(
        kernels_.count_rare(rows_of(g), kPackedRows * w_.columns, code_of_.data()));
}

bool PackedMatrix::arrange() {
  int64_t rare = 0, at = 0;
  for (PackedWeights::Place& place : places_) {
    int64_t bytes = (place.rare + 1) * static_cast<int64_t>(sizeof(RareWeight));
    rare += place.rare;
    place.rare = static_cast<uint32_t>(at);
    place.codes = static_cast<uint32_t>(at += units(bytes));
    at += units(code_bytes(w_));
  }
  if (rare > w_.rows * w_.columns / kRareShare) return false;
  memory_ = at::empty({64 * at}, at::kByte);
  packed_.data = memory_.const_data_ptr<uint8_t>();
  packed_.places = places_.data();
  return true;
}

void PackedMatrix::pack(int64_t from, int64_t to) {
  auto* data = memory_.mutable_data_ptr<uint8_t>();
  for (int64_t g = from; g < to; ++g) {
    auto [rare, codes] = places_[static_cast<size_t>(g)];
    kernels_.pack({.rows = rows_of(g),
                   .columns = w_.columns,
                   .code_of = code_of_.data(),
                   .codes = data + int64_t{64} * codes,
                   .rare = reinterpret_cast<RareWeight*>(data + int64_t{64} * rare)});
  }
}

}  // namespace neox
