#include "doctor/speed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

using Steady = std::chrono::steady_clock;

constexpr int kBarriers = 7;

// Waits for the device: the host needs the value.
double last_of(const Tensor& t) { return t.view({-1}).select(0, t.numel() - 1).item<double>(); }

double wall_clock() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double middle(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

void measure_matmul(const at::Device& device, RankReport& report) {
  const bool gpu = device.is_cuda();
  const int64_t n = gpu ? 8192 : 1024;
  auto options = at::TensorOptions().device(device).dtype(gpu ? at::kBFloat16 : at::kFloat);
  Tensor a = at::full({n, n}, 0.5, options), b = at::full({n, n}, 0.25, options);
  Tensor c = at::empty({n, n}, options);
  at::mm_out(c, a, b);
  last_of(c);
  auto begin = Steady::now();
  int64_t times = 0;
  for (const int64_t batch = gpu ? 20 : 1; seconds_since(begin) < 1; times += batch) {
    for (int64_t i = 0; i < batch; ++i) at::mm_out(c, a, b);
    last_of(c);
  }
  double flops = 2.0 * std::pow(static_cast<double>(n), 3) * static_cast<double>(times);
  report.rates.push_back({gpu ? "bf16 matmul" : "fp32 matmul", "TFLOP/s",
                          flops / seconds_since(begin) / 1e12, Blame::kNode});
  // 0.5 * 0.25 * n is exact in either type.
  if (last_of(c) != 0.125 * static_cast<double>(n))
    report.findings.push_back({Verdict::kWrong, "compute",
                               concat("rank ", report.rank, " on ", report.host,
                                      " multiplies wrongly: do not use this device")});
}

void measure_all_reduce(Communicator& group, const at::Device& device, const std::string& name,
                        Blame blame, RankReport& report) {
  if (group.size() == 1) return;
  const bool gpu = device.is_cuda();
  const int64_t elements = gpu ? 64 << 20 : 2 << 20;
  const int warm_up = 2, times = gpu ? 20 : 10;
  Tensor t = at::ones({elements}, at::TensorOptions().device(device).dtype(at::kFloat));
  for (int i = 0; i < warm_up; ++i) group.all_reduce(t);
  bool right = last_of(t) == std::pow(group.size(), warm_up);
  t.zero_();  // the sums would overflow
  last_of(t);
  auto begin = Steady::now();
  for (int i = 0; i < times; ++i) group.all_reduce(t);
  last_of(t);
  double bytes = static_cast<double>(elements) * sizeof(float) * times;
  double bus = 2.0 * (group.size() - 1) / group.size() * bytes / seconds_since(begin);
  report.rates.push_back({name, "GB/s", bus / 1e9, blame});
  if (!right)
    report.findings.push_back(
        {Verdict::kWrong, name,
         concat("sums are wrong on rank ", report.rank, " (", report.host, ")")});
}

ClockOffset clock_offset(std::span<const double> mine, std::span<const double> first) {
  std::vector<double> offsets, spread;
  for (size_t i = 0; i < mine.size(); ++i) offsets.push_back(mine[i] - first[i]);
  double offset = middle(offsets);
  for (double o : offsets) spread.push_back(std::abs(o - offset));
  // Ranks leave a barrier at different times, by about as much as that varies.
  return {offset, 0.05 + *std::ranges::max_element(spread)};
}

void measure_clock(Control& control, RankReport& report) {
  std::ostringstream text;
  text.precision(17);
  for (int i = 0; i < kBarriers; ++i) {
    control.barrier();
    text << wall_clock() << ' ';
  }
  auto times_of = [](const std::string& words) {
    std::istringstream in(words);
    std::vector<double> times;
    for (double t = 0; in >> t;) times.push_back(t);
    return times;
  };
  std::string first = control.gather(text.str()).at(0);
  ClockOffset clock = clock_offset(times_of(text.str()), times_of(first));
  report.clock_offset = clock.offset;
  report.clock_error = clock.error;
}

}  // namespace neox
