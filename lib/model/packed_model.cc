#include "model/packed_model.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "ops/team.h"

namespace neox {
namespace {

constexpr int64_t kStepsBefore = 8;
// Of the matrices as they are, so many bytes are enough to tell which way is faster.
constexpr int64_t kMeasuredBytes = int64_t{1} << 30;

int64_t bytes_of(const WeightMatrix& w) { return 2 * w.rows * w.columns; }

// Seconds that threads take to multiply a row with each of the matrices.
double seconds_of(const RowKernels& kernels, const std::vector<WeightMatrix>& matrices,
                  int threads) {
  int64_t rows = 0, columns = 0;
  for (const WeightMatrix& w : matrices)
    rows = std::max(rows, w.rows), columns = std::max(columns, padded_row(w.columns));
  at::Tensor x = at::zeros({columns}, at::kFloat), y = at::empty({rows}, at::kFloat);
  auto start = std::chrono::steady_clock::now();
  run_team(threads, [&](Team& team) {
    for (const WeightMatrix& w : matrices) {
      auto [from, to] = team.share(w.rows, kRowMultiple);
      kernels.multiply(w, from, to, {x.mutable_data_ptr<float>(), 1, columns},
                       {y.mutable_data_ptr<float>(), 1, rows});
    }
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

bool PackedModel::count_step(const RowKernels& kernels, const std::vector<WeightMatrix*>& matrices,
                             int threads) {
  if (done_ || ++steps_ < kStepsBefore) return done_;
  std::vector<WeightMatrix> fitting;
  for (const WeightMatrix* w : matrices)
    if (PackedMatrix::fits(kernels, *w)) fitting.push_back(*w);
  if (!fitting.empty()) pack(kernels, fitting, threads);
  if (packing_ == WeightPacking::kWhereFaster && !packed_.empty() &&
      !is_faster(kernels, fitting, threads))
    packed_.clear();
  return done_ = true;
}

const PackedWeights* PackedModel::of(const WeightMatrix& w) const {
  auto found = packed_.find(w.data);
  return found == packed_.end() ? nullptr : &found->second->packed();
}

void PackedModel::pack(const RowKernels& kernels, const std::vector<WeightMatrix>& matrices,
                       int threads) {
  int64_t bytes = 0, left = std::max<int64_t>(available_memory() - left_alone_, 0);
  for (const WeightMatrix& w : matrices) bytes += PackedMatrix::bytes_of(w);
  if (packing_ == WeightPacking::kWhereFaster && bytes > left / 2)
    return log_info("weights in 12 bits, which may be a third faster, would take ",
                    human_bytes(static_cast<double>(bytes)), " beside those in 16; of memory ",
                    human_bytes(static_cast<double>(left)), " are left");
  auto in_groups = [&](void (PackedMatrix::*work)(int64_t, int64_t)) {
    run_team(threads, [&](Team& team) {
      for (auto& [data, matrix] : packed_) {
        auto [from, to] = team.share(matrix->num_groups());
        (matrix.get()->*work)(from, to);
      }
    });
  };
  for (const WeightMatrix& w : matrices)
    packed_[w.data] = std::make_unique<PackedMatrix>(kernels, w);
  in_groups(&PackedMatrix::count);
  std::erase_if(packed_, [](auto& matrix) { return !matrix.second->arrange(); });
  in_groups(&PackedMatrix::pack);
}

bool PackedModel::is_faster(const RowKernels& kernels, const std::vector<WeightMatrix>& matrices,
                            int threads) const {
  std::vector<WeightMatrix> as_is, packed;
  int64_t bytes = 0;
  for (WeightMatrix w : matrices) {
    const PackedWeights* found = of(w);
    if (!found || bytes > kMeasuredBytes) continue;
    bytes += bytes_of(w);
    as_is.push_back(w);
    w.packed = found;
    packed.push_back(w);
  }
  double usual = 1e9, narrow = 1e9;
  for (int i = 0; i < 2; ++i) {
    usual = std::min(usual, seconds_of(kernels, as_is, threads));
    narrow = std::min(narrow, seconds_of(kernels, packed, threads));
  }
  return narrow < usual;
}

}  // namespace neox
