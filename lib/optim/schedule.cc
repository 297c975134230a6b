#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace neox {
namespace {

double cosine(double part) { return (std::cos(std::numbers::pi * part) + 1) / 2; }

// NeoX 1.0, which trained Pythia: period decay_iters, held after decay_iters - warmup, cosine down
// to 0.
double v1(const ScheduleConfig& c, double step) {
  double t = std::min(step, static_cast<double>(c.decay_iters) - c.warmup_iters);
  if (c.warmup_iters > 0 && step <= c.warmup_iters) return c.lr * t / c.warmup_iters;
  double part = (t - c.warmup_iters) / static_cast<double>(c.decay_iters);
  double lr = c.decay == LrDecay::kLinear   ? c.lr * (1 - part)
              : c.decay == LrDecay::kCosine ? c.lr * cosine(part)
                                            : c.lr;
  return std::max(lr, c.min_lr);
}

// NeoX main: period decay_iters - warmup, cosine down to min_lr.
double v2(const ScheduleConfig& c, double step) {
  // NeoX divides by a warm-up of less than one step too, and begins above lr; here it begins at lr.
  if (c.warmup_iters > 0 && step <= c.warmup_iters)
    return c.lr * std::min(1.0, std::max(1.0, step) / c.warmup_iters);
  double part = (step - c.warmup_iters) / (static_cast<double>(c.decay_iters) - c.warmup_iters);
  double lr = c.decay == LrDecay::kLinear   ? c.lr * (1 - part)
              : c.decay == LrDecay::kCosine ? c.min_lr + (c.lr - c.min_lr) * cosine(part)
                                            : c.lr;
  return std::max(lr, c.min_lr);
}

}  // namespace

double learning_rate(const ScheduleConfig& config, int64_t step) {
  return (config.formula == LrFormula::kV1 ? v1 : v2)(config, static_cast<double>(step));
}

std::vector<double> learning_rates(const ScheduleConfig& config, int64_t iters) {
  std::vector<double> rates(static_cast<size_t>(std::max<int64_t>(iters, 1)));
  for (size_t i = 0; i < rates.size(); ++i)
    rates[i] = learning_rate(config, static_cast<int64_t>(i));
  return rates;
}

}  // namespace neox
