#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace neox {
namespace {

double cosine(double part) { return (std::cos(std::numbers::pi * part) + 1) / 2; }
double half(double part) { return std::exp(-0.693 * part); }  // NeoX's number for ln 2

// NeoX 1.0, which trained Pythia: period decay_iters, held after decay_iters - warmup, cosine down
// to 0.
double v1(const ScheduleConfig& c, double step) {
  double t = std::min(step, c.decay_iters - c.warmup_iters);
  if (c.warmup_iters > 0 && step <= c.warmup_iters) return c.lr * t / c.warmup_iters;
  double part = (t - c.warmup_iters) / c.decay_iters;
  double lr = c.decay == LrDecay::kLinear        ? c.lr * (1 - part)
              : c.decay == LrDecay::kCosine      ? c.lr * cosine(part)
              : c.decay == LrDecay::kExponential ? c.lr * half(part)
                                                 : c.lr;
  return std::max(lr, c.min_lr);
}

// NeoX main: period decay_iters - warmup, cosine down to min_lr.
double v2(const ScheduleConfig& c, double step) {
  // NeoX divides by a warm-up of less than one step too, and begins above lr; here it begins at lr.
  if (c.warmup_iters > 0 && step <= c.warmup_iters)
    return c.lr * std::min(1.0, std::max(1.0, step) / c.warmup_iters);
  // A run that was warm-up alone, and is trained longer by its own schedule.
  if (c.warmup_iters >= c.decay_iters) return c.decay == LrDecay::kConstant ? c.lr : c.min_lr;
  double part = (step - c.warmup_iters) / (c.decay_iters - c.warmup_iters);
  double lr = c.decay == LrDecay::kLinear        ? c.lr * (1 - part)
              : c.decay == LrDecay::kCosine      ? c.min_lr + (c.lr - c.min_lr) * cosine(part)
              : c.decay == LrDecay::kExponential ? c.lr * half(part)
                                                 : c.lr;
  return std::max(lr, c.min_lr);
}

// What is left of lr - min_lr after `part` of WSD's decay.
double wsd(WsdDecay decay, double part) {
  switch (decay) {
    case WsdDecay::kLinear:
      return 1 - part;
    case WsdDecay::kCosine:
      return cosine(part);
    case WsdDecay::kMinusSqrt:
      return 1 - std::sqrt(part);
    default:
      return 2 * std::pow(0.5, part) - 1;
  }
}

// Megatron-Core's OptimizerParamScheduler with init_lr 0, counting steps instead of samples:
// warm-up begins at 0, and after decay_iters the rate is min_lr.
double megatron(const ScheduleConfig& c, double step) {
  if (c.warmup_iters > 0 && step <= c.warmup_iters) return c.lr * step / c.warmup_iters;
  if (c.decay == LrDecay::kConstant) return c.lr;
  double end = c.decay_iters;
  if (step > end) return c.min_lr;
  if (c.decay == LrDecay::kInverseSquareRoot)
    return std::max(c.min_lr,
                    c.lr * std::sqrt(std::max(c.warmup_iters, 1.0) / std::max(step, 1.0)));
  double part = (step - c.warmup_iters) / (end - c.warmup_iters);
  auto last = static_cast<double>(c.wsd_decay_iters);
  double left = c.decay == LrDecay::kLinear   ? 1 - part
                : c.decay == LrDecay::kCosine ? cosine(part)
                : step <= end - last          ? 1
                                              : wsd(c.wsd_decay, (step - (end - last)) / last);
  return c.min_lr + (c.lr - c.min_lr) * left;
}

}  // namespace

double learning_rate(const ScheduleConfig& config, double step) {
  auto formula = config.formula == LrFormula::kV1   ? v1
                 : config.formula == LrFormula::kV2 ? v2
                                                    : megatron;
  return formula(config, step);
}

std::vector<double> learning_rates(const ScheduleConfig& config, int64_t iters,
                                   const BatchSchedule& batches) {
  std::vector<double> rates(static_cast<size_t>(std::max<int64_t>(iters, 1)));
  for (size_t i = 0; i < rates.size(); ++i)
    rates[i] = learning_rate(config, batches.full_batches(static_cast<int64_t>(i)));
  return rates;
}

}  // namespace neox
