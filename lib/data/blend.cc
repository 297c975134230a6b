#include "data/blend.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

// From left to right, as Python's sum() up to 3.11.
double python_sum(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum;
}

std::vector<double> divided(std::vector<double> values, double divisor) {
  for (double& value : values) value /= divisor;
  return values;
}

int64_t ceiling(double value) { return static_cast<int64_t>(std::ceil(value)); }

}  // namespace

// pairwise_sum of numpy (numpy/core/src/umath/loops_utils.h.src).
double numpy_sum(std::span<const double> v) {
  constexpr size_t kBlock = 128;
  double sum = 0;
  if (v.size() < 8) {
    for (double value : v) sum += value;
    return sum;
  }
  if (v.size() > kBlock) {
    size_t half = v.size() / 2;
    half -= half % 8;
    return numpy_sum(v.first(half)) + numpy_sum(v.subspan(half));
  }
  double r[8];
  std::copy_n(v.begin(), 8, r);
  size_t i = 8;
  for (; i + 8 <= v.size(); i += 8)
    for (size_t k = 0; k < 8; ++k) r[k] += v[i + k];
  sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < v.size(); ++i) sum += v[i];
  return sum;
}

// weights_by_num_docs of GPT-NeoX (megatron/data/data_utils.py).
std::vector<double> weights_by_documents(std::span<const int64_t> documents, double alpha) {
  if (documents.size() == 1) return {1.0};
  int64_t total = 0;
  for (int64_t n : documents) total += n;
  std::vector<double> weights;
  for (int64_t n : documents)
    weights.push_back(std::pow(static_cast<double>(n) / static_cast<double>(total), alpha));
  weights = divided(weights, python_sum(weights));
  for (size_t i = 0; i < weights.size(); ++i) {
    double rest = 1 - static_cast<double>(documents[i]) / static_cast<double>(total);
    weights[i] *= rest;
  }
  double sum = python_sum(weights);
  check_usage(sum > 0,
              "weight_by_num_documents gives no data set a weight; give data sets with documents");
  return divided(weights, sum);
}

BlendPlan plan_blend(DataOrder order, const std::vector<double>& given, int64_t datasets,
                     int64_t samples) {
  const auto n = static_cast<size_t>(datasets);
  const bool core = order == DataOrder::kMegatronCore;
  if (core && given.empty()) return {{}, std::vector<int64_t>(n, kOneEpoch), 0};
  BlendPlan plan{given.empty() ? std::vector<double>(n, 1.0) : given, {}, 0};
  check(plan.weights.size() == n, n, " datasets and ", given.size(), " weights");
  plan.weights = divided(plan.weights, core ? numpy_sum(plan.weights) : python_sum(plan.weights));
  const auto asked = static_cast<double>(samples);
  for (double weight : plan.weights) {
    int64_t used = ceiling(asked * weight);
    int64_t built =
        core ? ceiling(static_cast<double>(used) * (1 + 0.005)) : ceiling(asked * weight * 1.005);
    plan.samples.push_back(built);
    plan.size += core ? used : built;
  }
  return plan;
}

BlendIndex build_blend(std::span<const double> given, int64_t size, const Poll& poll) {
  std::vector<double> weights = divided({given.begin(), given.end()}, numpy_sum(given));
  check(weights.size() <= UINT16_MAX, weights.size(), " datasets");
  check_usage(size < UINT32_MAX, "a blend of ", with_commas(size), " samples; at most ",
              with_commas(UINT32_MAX), " can be ordered");
  const size_t n = weights.size();
  std::vector<double> drawn(n);  // whole numbers
  BlendIndex index;
  index.dataset.resize(static_cast<size_t>(size));
  index.sample.resize(static_cast<size_t>(size));
  for (size_t k = 0; k < index.dataset.size(); ++k) {
    if (poll && k % (kPollSteps / 64) == 0) poll();
    const double step = std::max(static_cast<double>(k), 1.0);
    size_t furthest = 0;
    double most = weights[0] * step - drawn[0];
    for (size_t i = 1; i < n; ++i) {
      double error = weights[i] * step - drawn[i];
      if (error > most) {
        most = error;
        furthest = i;
      }
    }
    index.dataset[k] = static_cast<uint16_t>(furthest);
    index.sample[k] = static_cast<uint32_t>(drawn[furthest]);
    drawn[furthest] += 1;
  }
  return index;
}

}  // namespace neox
