#include "ops/score_rule.h"

#include <ATen/core/ivalue.h>

#include <utility>

#include "ops/clones.h"

namespace neox {
namespace {

constexpr int64_t kAll = int64_t{1} << 40;  // beyond any text
// Scaled by 1e-5 to 100 it is finite, and so far below kNoScore that its share is 0.
constexpr float kHidden = -1e36F;

NEOX_CLONES void add_ramp(float* x, int64_t n, float start, float step) {
  for (int64_t i = 0; i < n; ++i) x[i] += start + step * static_cast<float>(i);
}

struct KeptRule : torch::CustomClassHolder {
  explicit KeptRule(ScoreRule r) : rule(std::move(r)) {}
  ScoreRule rule;
};

}  // namespace

c10::IValue kept(const ScoreRule& rule) {
  return c10::IValue::make_capsule(c10::make_intrusive<KeptRule>(rule));
}

ScoreRule kept_rule(const c10::IValue& value) {
  return c10::static_intrusive_pointer_cast<KeptRule>(value.toCapsule())->rule;
}

HeadRule::HeadRule(const ScoreRule& rule, int64_t head)
    : scale_(static_cast<float>(rule.scale)),
      window_(rule.window > 0 ? rule.window : kAll),
      counts_(rule.counts_distance()) {
  if (!rule.slopes.empty())
    slope_ = static_cast<float>(rule.slopes[static_cast<size_t>(head)] / rule.scale);
}

void HeadRule::count(const ProductBlock& b) const {
  int64_t step = b.keys_are_rows ? 1 : -1;  // of the distance, from column to column
  for (int64_t r = 0; r < b.rows; ++r) {
    float* row = b.data + r * b.stride;
    int64_t distance = b.first_query - b.first_key - step * r;
    if (slope_ != 0)
      add_ramp(row, b.columns, -slope_ * static_cast<float>(distance),
               -slope_ * static_cast<float>(step));
    int64_t beyond = distance - window_;  // from which columns of the window are as far
    if (b.keys_are_rows)
      std::fill(row + std::clamp<int64_t>(1 - beyond, 0, b.columns), row + b.columns, kHidden);
    else
      std::fill(row, row + std::clamp<int64_t>(beyond, 0, b.columns), kHidden);
  }
}

}  // namespace neox
