// How benchmarks/kernels times an operation, and what it says of it.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "extra_memory.h"
#include "model/graphs.h"

namespace neox {

struct KernelShape {
  const char* name;
  int64_t layers, hidden, heads;
};

struct KernelSetting {
  at::TensorOptions options;
  KernelShape shape;
  int64_t tokens;
  int round = 0;
  double copy_rate = 0;   // GB/s, read and written
  std::string only = {};  // what the names of measured cases contain
  bool wants(const std::string& name) const { return name.find(only) != std::string::npos; }
  at::Tensor random(at::IntArrayRef size) const { return at::randn(size, options); }
};

// Of one run, after warming up: the best of three spells of at least 0.05 s.
inline double seconds_of(at::Device device, const std::function<void()>& run) {
  auto spell = [&](int64_t runs) {
    wait(device);
    auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < runs; ++i) run();
    wait(device);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  run();
  auto runs = static_cast<int64_t>(std::clamp(0.05 / spell(1), 1.0, 1000.0));
  double best = spell(runs);
  for (int i = 0; i < 2; ++i) best = std::min(best, spell(runs));
  return best / static_cast<double>(runs);
}

// The same of work that is recorded, a few runs in one CUDA graph, as in a training step: else
// short kernels wait for the host. What one run leaves in caches the next one finds. On a CPU, and
// where work cannot be recorded, which is said, as it is.
inline double recorded_seconds_of(at::Device device, const std::function<void()>& run) {
  constexpr int kRuns = 5;
  auto recorder = graph_recorder(device);
  if (!recorder) return seconds_of(device, run);
  for (int i = 0; i < 2; ++i) run();  // libraries warm up
  GraphRecorder::Work runs;
  try {
    runs = recorder->record(0, [&] {
      for (int i = 0; i < kRuns; ++i) run();
    });
  } catch (const std::exception& e) {
    std::string text = e.what();
    std::cerr << "not recorded: " << text.substr(0, text.find('\n')) << std::endl;
    return seconds_of(device, run);
  }
  return seconds_of(device, runs) / kRuns;
}

inline void say(const KernelSetting& s, const std::string& name, const char* who,
                const nlohmann::json& more) {
  nlohmann::json line{{"suite", "kernels"},
                      {"case", concat(name, " ", s.shape.name, " ", s.tokens, " tokens")},
                      {"who", who},
                      {"round", s.round},
                      {"dtype", c10::toString(c10::typeMetaToScalarType(s.options.dtype()))}};
  line.update(more);
  std::cout << line << std::endl;
}

inline void report(const KernelSetting& s, const std::string& name, const char* who, double bytes,
                   double seconds) {
  say(s, name, who,
      {{"metric", "GB/s"},
       {"value", bytes / seconds * 1e-9},
       {"microseconds", seconds * 1e6},
       {"bytes", bytes},
       {"of ceiling", bytes / seconds * 1e-9 / s.copy_rate}});
}

// The kernels of generation's steps of one token, on a GPU, as a CUDA graph of all layers.
void run_decoding(const KernelSetting& setting);

}  // namespace neox
