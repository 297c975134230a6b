// What a machine gives at most: rates of matrix products in fp32 and bf16, of reading and copying
// memory, and of a disk. benchmarks/run divides by them what it measures in the same run.
//
//   cmake --build build/release --target ceilings
//   build/release/benchmarks/ceilings --product 2048,50304,512 --threads 1 [--device cuda] [--disk
//   DIR]
//
// Prints a JSON line for each measurement (benchmarks/harness/lines.py); the unit is FLOP/s or
// bytes/s. Products of a CPU are measured in fp32 too, with the two libraries that LibTorch has for
// them.
#include <ATen/Parallel.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mkldnn_linear.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fcntl.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/program.h"
#include "memory_read.h"

namespace neox {
namespace {

using at::Tensor;
using Clock = std::chrono::steady_clock;

struct Measurement {
  std::string name, unit, dtype;
  double work = 0;  // of one call, in FLOP or bytes
  std::function<void()> call;
};

class Bench {
 public:
  Bench(at::Device device, int rounds) : device_(device), rounds_(rounds) {}

  // Each round calls until 50 ms have passed, after one call that warms up. What takes longer than
  // kLong (bf16 without its instructions) has one round.
  void run(const Measurement& m) const {
    time_of(m, 1);
    double once = time_of(m, 1);
    if (once > kLong) return say(m, once, 0);
    int calls = std::max(1, static_cast<int>(0.05 / once));
    for (int round = 0; round < rounds_; ++round) say(m, time_of(m, calls) / calls, round);
  }

  at::TensorOptions options(at::ScalarType type) const {
    return at::TensorOptions().device(device_).dtype(type);
  }
  at::Device device() const { return device_; }

 private:
  static constexpr double kLong = 1;  // second

  static void say(const Measurement& m, double seconds, int round) {
    std::printf(R"({"suite": "ceilings", "case": "%s", "who": "LibTorch %s", "metric": "%s", )"
                R"("value": %.4g, "dtype": "%s", "round": %d})"
                "\n",
                m.name.c_str(), TORCH_VERSION, m.unit.c_str(), m.work / seconds, m.dtype.c_str(),
                round);
    std::fflush(stdout);
  }
  double time_of(const Measurement& m, int calls) const {
    settle();
    auto start = Clock::now();
    for (int i = 0; i < calls; ++i) m.call();
    settle();
    return std::max(1e-9, std::chrono::duration<double>(Clock::now() - start).count());
  }
  void settle() const {
    if (!device_.is_cpu())
      c10::impl::getDeviceGuardImpl(device_.type())->synchronizeDevice(device_.index());
  }

  at::Device device_;
  int rounds_;
};

struct Product {
  int64_t m = 0, n = 0, k = 0;
};

Product parse_product(const std::string& text) {
  Product p;
  char rest = 0;
  int found = std::sscanf(text.c_str(), "%ld,%ld,%ld%c", &p.m, &p.n, &p.k, &rest);
  check_usage(found == 3 && p.m > 0 && p.n > 0 && p.k > 0, "--product ", text,
              ": expected three sizes M,N,K, as in 2048,50304,512");
  return p;
}

// Random numbers: zeros take less power, and so more clock.
void run_product(const Bench& bench, const Product& p, at::ScalarType type) {
  bool is_bf16 = type == at::kBFloat16;
  std::string size = std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k);
  double flops = 2.0 * double(p.m) * double(p.n) * double(p.k);
  auto named = [&](const std::string& how, std::function<void()> call) {
    std::string dtype = is_bf16 ? "bf16" : "fp32";
    bench.run({"matmul " + dtype + " " + size + how, "FLOP/s", dtype, flops, std::move(call)});
  };
  auto options = bench.options(at::kFloat);
  Tensor x = at::randn({p.m, p.k}, options).to(type), w = at::randn({p.n, p.k}, options).to(type);
  named("", [&] { at::linear(x, w); });
  if (is_bf16 || !bench.device().is_cpu()) return;
  Tensor packed_x = x.to_mkldnn(), packed_w = w.to_mkldnn();
  named(" oneDNN", [&] { at::mkldnn_linear(packed_x, packed_w); });
}

void run_memory(const Bench& bench) {
  bool cpu = bench.device().is_cpu();
  int64_t count = (int64_t{1} << (cpu ? 29 : 32)) / 8;
  Tensor from = at::empty({count}, bench.options(at::kLong)).fill_(1), to = at::empty_like(from);
  auto bytes = double(count) * 8;
  volatile uint64_t sink = 0;
  auto read = [&](auto read_words) {
    if (!cpu) return void(at::amax(from));
    const auto* words = reinterpret_cast<const uint64_t*>(from.const_data_ptr<int64_t>());
    int64_t part = count / at::get_num_threads();
    std::vector<std::jthread> threads;
    for (int64_t begin = 0; begin + part <= count; begin += part)
      threads.emplace_back([&, begin] { sink = read_words(words + begin, part); });
  };
  bench.run({"memory read", "bytes/s", "", bytes, [&] { read(read_in_turn); }});
  if (cpu)
    bench.run({"memory read, eight places", "bytes/s", "", bytes, [&] { read(read_in_places); }});
  // A copy moves each byte twice.
  bench.run({"memory copy, read and written", "bytes/s", "", 2 * bytes, [&] { to.copy_(from); }});
}

// Blocks past the page cache, as dd oflag=direct writes them; the write ends with fsync.
class DiskFile {
 public:
  static constexpr int64_t kBlock = int64_t{16} << 20, kBlocks = 48;

  explicit DiskFile(const std::string& folder)
      : path_(folder + "/ceilings." + std::to_string(::getpid())),
        block_(static_cast<char*>(std::aligned_alloc(4096, kBlock)), &std::free) {
    std::memset(block_.get(), 1, kBlock);
  }
  ~DiskFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  void pass(int flags, const std::function<ssize_t(int file, char* block, int64_t at)>& move) {
    int file = ::open(path_.c_str(), flags | O_DIRECT | O_CLOEXEC, 0600);
    check_io(file >= 0, path_, ": cannot be opened past the page cache: ", std::strerror(errno));
    for (int64_t i = 0; i < kBlocks; ++i)
      check_io(move(file, block_.get(), i * kBlock) == kBlock, path_, ": ", std::strerror(errno));
    check_io(::fsync(file) == 0, path_, ": ", std::strerror(errno));
    ::close(file);
  }

 private:
  std::string path_;
  std::unique_ptr<char, decltype(&std::free)> block_;
};

void run_disk(const Bench& bench, const std::string& folder) {
  DiskFile file(folder);
  auto bytes = double(DiskFile::kBlock * DiskFile::kBlocks);
  bench.run({"disk write, direct, 1 thread", "bytes/s", "", bytes, [&] {
               file.pass(O_WRONLY | O_CREAT, [](int f, char* block, int64_t at) {
                 return ::pwrite(f, block, DiskFile::kBlock, at);
               });
             }});
  bench.run({"disk read, direct, 1 thread", "bytes/s", "", bytes, [&] {
               file.pass(O_RDONLY, [](int f, char* block, int64_t at) {
                 return ::pread(f, block, DiskFile::kBlock, at);
               });
             }});
}

int run(int argc, char** argv) {
  namespace po = boost::program_options;
  Program program({.name = "ceilings",
                   .summary = "measures what this machine gives at most",
                   .usage = "[options]",
                   .description = "Prints JSON lines for benchmarks/run.",
                   .examples = "ceilings --product 2048,50304,512 --threads 1"});
  program.options().add_options()(
      "product", po::value<std::vector<std::string>>()->composing()->default_value({}, ""),
      "M,N,K of a matrix product; as often as wanted")(
      "device", po::value<std::string>()->default_value("cpu"), "cpu or cuda")(
      "threads", po::value<int>()->default_value(0),
      "of the CPU; 0: as many as the process may use")("rounds", po::value<int>()->default_value(3),
                                                       "measurements of each")(
      "disk", po::value<std::string>()->default_value(""), "measures the disk of this directory");
  if (!program.parse(argc, argv)) return 0;
  c10::InferenceMode inference;
  if (int threads = program.get<int>("threads"); threads > 0) at::set_num_threads(threads);
  std::string name = program.get<std::string>("device");
  check_usage(name == "cpu" || name == "cuda", "--device ", name, ": expected cpu or cuda");
  Bench bench(name == "cpu" ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0),
              program.get<int>("rounds"));
  for (const std::string& text : program.get<std::vector<std::string>>("product"))
    for (auto type : {at::kFloat, at::kBFloat16})  // nothing trains in fp32 on a GPU
      if (bench.device().is_cpu() || type == at::kBFloat16)
        run_product(bench, parse_product(text), type);
  run_memory(bench);
  if (auto disk = program.get<std::string>("disk"); !disk.empty()) run_disk(bench, disk);
  return 0;
}

}  // namespace
}  // namespace neox

int main(int argc, char** argv) {
  return neox::run_program("ceilings", [&] { return neox::run(argc, argv); });
}
