// What benchmarks/checkpoint.py asks of neox.cpp: the training state of a Pythia shape (bf16
// weights, fp32 master, m, v), saved and loaded, beside the disk's own rate. Reads commands from
// stdin, each answered by a line of JSON: write, async, load, raw_write, raw_read, copy.
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/background.h"
#include "ops/cpu_arena.h"

namespace neox {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kRawBlock = size_t{16} << 20;
constexpr size_t kHugePage = 2 << 20;
constexpr int kRawThreads = 4, kStepsBefore = 3;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Shape {
  std::string name;
  int64_t layers, hidden, vocab = 50304;
};

Shape find_shape(const std::string& name) {
  for (const Shape& shape : {Shape{"14m", 6, 128}, Shape{"70m", 6, 512}, Shape{"160m", 12, 768},
                             Shape{"410m", 24, 1024}, Shape{"1.4b", 24, 2048}})
    if (shape.name == name) return shape;
  fail(Exit::kUsage, "no shape ", name, "; there are 14m, 70m, 160m, 410m, 1.4b");
}

// Tensors of a buffer, one after the other.
struct Buffer {
  std::string name;
  std::vector<std::pair<std::string, Dims>> tensors;
};

std::vector<Buffer> buffers_of(const Shape& shape) {
  int64_t h = shape.hidden;
  std::vector<Buffer> buffers = {{"embed_in", {{"embed_in.weight", {shape.vocab, h}}}}};
  for (int64_t i = 0; i < shape.layers; ++i) {
    std::string layer = concat("layers.", i, ".");
    buffers.push_back({layer + "matrices",
                       {{layer + "qkv.weight", {3 * h, h}},
                        {layer + "dense.weight", {h, h}},
                        {layer + "up.weight", {4 * h, h}},
                        {layer + "down.weight", {h, 4 * h}}}});
    buffers.push_back({layer + "vectors",
                       {{layer + "norms", {4 * h}},
                        {layer + "qkv.bias", {3 * h}},
                        {layer + "dense.bias", {h}},
                        {layer + "up.bias", {4 * h}},
                        {layer + "down.bias", {h}}}});
  }
  buffers.push_back({"final", {{"final_norm", {2 * h}}}});
  buffers.push_back({"embed_out", {{"embed_out.weight", {shape.vocab, h}}}});
  return buffers;
}

int64_t parameters_of(const Shape& shape) {
  int64_t count = 0;
  for (const Buffer& buffer : buffers_of(shape))
    for (const auto& [name, dims] : buffer.tensors) count += num_elements(dims);
  return count;
}

std::vector<StateChunk> state_of(const Shape& shape, at::Device device) {
  std::vector<StateChunk> chunks;
  for (const Buffer& buffer : buffers_of(shape))
    for (auto [state, type] : {std::pair{"param", at::kBFloat16}, std::pair{"master", at::kFloat},
                               std::pair{"adam_m", at::kFloat}, std::pair{"adam_v", at::kFloat}}) {
      StateChunk chunk{buffer.name, state, {}, {}};
      int64_t size = 0;
      for (const auto& [name, dims] : buffer.tensors) {
        chunk.placements.push_back({name, dims, whole(dims), size});
        size += num_elements(dims);
      }
      chunk.data = at::rand({size}, at::device(device).dtype(type));
      chunks.push_back(std::move(chunk));
    }
  return chunks;
}

void drop_from_cache(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    int fd = ::open(entry.path().c_str(), O_RDONLY);
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

void say(const std::string& what, double seconds, int64_t bytes, const std::string& more = "") {
  std::printf("{\"what\": \"%s\", \"seconds\": %.4f, \"bytes\": %lld%s}\n", what.c_str(), seconds,
              static_cast<long long>(bytes), more.c_str());
  std::fflush(stdout);
}

class Driver {
 public:
  Driver(fs::path dir, const Shape& shape, at::Device device)
      : dir_(std::move(dir)), device_(device), chunks_(state_of(shape, device)) {
    for (const StateChunk& chunk : chunks_) bytes_ += static_cast<int64_t>(chunk.data.nbytes());
    ::madvise(raw_memory_.get(), kRawThreads * kRawBlock, MADV_HUGEPAGE);  // the disk's best
    std::memset(raw_memory_.get(), 1, kRawThreads * kRawBlock);
    int64_t side = device.is_cpu() ? 1024 : 8192;
    a_ = at::randn({side, side},
                   at::device(device).dtype(device.is_cpu() ? at::kFloat : at::kBFloat16));
    product_ = at::empty_like(a_);
    if (!device.is_cpu()) {
      auto flops = 6.0 * static_cast<double>(parameters_of(shape)) * kStepTokens;
      products_ = std::max(1, static_cast<int>(flops / std::pow(side, 3) / 2));
    }
    saver_ = std::make_unique<BackgroundSave>(options(), std::make_unique<AloneControl>(), 1);
    saver_->prepare(chunks_);
  }
  void run(const std::string& command) {
    if (command == "write") return write();
    if (command == "async") return async();
    if (command == "load") return load();
    if (command == "copy") return copy();
    check_usage(command == "raw_write" || command == "raw_read", "no command ", command);
    raw(command == "raw_write");
  }

 private:
  SaveOptions options() const { return {.dir = dir_ / "ours", .keep_last = 1}; }
  TrainState next_state() {
    TrainState state;
    state.iteration = ++step_;
    return state;
  }
  void write() {
    AloneControl control;
    fs::remove_all(dir_ / "ours");
    auto start = Clock::now();
    save_checkpoint(options(), chunks_, next_state(), control);
    say("write", since(start), bytes_);
  }
  void load() {
    fs::path dir = find_checkpoint(dir_ / "ours").value();
    drop_from_cache(dir);
    auto start = Clock::now();
    Checkpoint(dir).read(chunks_);
    say("load", since(start), bytes_);
  }
  // What the processor does in a step, about: on a GPU as many products as a step of kStepTokens
  // has work, and then an update of the state, which waits for its copy.
  double compute() {
    return step([] {}, [] {});
  }
  double step(const std::function<void()>& before, const std::function<void()>& before_update) {
    auto start = Clock::now();
    before();
    for (int i = 0; i < products_; ++i) at::mm_out(product_, a_, a_);
    before_update();
    if (!device_.is_cpu()) {
      for (StateChunk& chunk : chunks_) chunk.data.add_(0);
      c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
    }
    return since(start);
  }
  // Steps before, and while a save is written: where it stalls them, and what they lose. On a CPU
  // the stall is what the calls take; on a GPU, where the device waits, how much longer the step
  // takes in which the save begins.
  void async() {
    std::vector<double> before;
    for (int i = 0; i < kStepsBefore; ++i) before.push_back(compute());
    std::ranges::sort(before);
    double usual = before[kStepsBefore / 2], in_calls = 0;
    auto start = Clock::now();
    auto timed = [&](const std::function<void()>& call) {
      return [&in_calls, call] {
        auto begin = Clock::now();
        call();
        in_calls += since(begin);
      };
    };
    double first = step(timed([&] { saver_->start(chunks_, next_state()); }),
                        timed([&] { saver_->release(); }));
    double computed = first - in_calls, stall = device_.is_cpu() ? in_calls : first - usual;
    int steps = 1;
    for (; saver_->under_way() && !saver_->poll(); ++steps) computed += compute();
    double lost = computed + in_calls - stall - steps * usual;
    say("async", since(start), bytes_,
        concat(", \"stall\": ", stall, ", \"steps\": ", steps, ", \"step\": ", usual,
               ", \"lost_in_steps\": ", lost));
  }
  void copy() {
    std::vector<std::byte> there(kRawBlock);
    auto start = Clock::now();
    for (const StateChunk& chunk : chunks_)
      for (size_t at = 0; at < chunk.data.nbytes(); at += kRawBlock)
        std::memcpy(there.data(), static_cast<const std::byte*>(chunk.data.const_data_ptr()) + at,
                    std::min(kRawBlock, chunk.data.nbytes() - at));
    say("copy", since(start), bytes_);
  }
  void raw(bool write) {
    std::string path = dir_ / "raw";
    size_t count = static_cast<size_t>(bytes_) / kRawBlock;
    int flags = write ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY;
    int fd = ::open(path.c_str(), flags | O_DIRECT, 0644);
    check_io(fd >= 0, "cannot open ", path, " with O_DIRECT");
    std::atomic<size_t> next = 0;
    auto start = Clock::now();
    if (write) (void)!::fallocate(fd, 0, 0, static_cast<off_t>(count * kRawBlock));
    auto work = [&](std::byte* block) {
      for (size_t i; (i = next++) < count;) {
        auto at = static_cast<off_t>(i * kRawBlock);
        ssize_t n = write ? ::pwrite(fd, block, kRawBlock, at) : ::pread(fd, block, kRawBlock, at);
        check_io(n == static_cast<ssize_t>(kRawBlock), path, ": a short transfer");
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kRawThreads; ++i)
      threads.emplace_back(work, raw_memory_.get() + kRawBlock * static_cast<size_t>(i));
    for (std::thread& thread : threads) thread.join();
    ::fsync(fd);
    say(write ? "raw_write" : "raw_read", since(start), static_cast<int64_t>(count * kRawBlock));
    ::close(fd);
    if (!write) fs::remove(path);
  }

  static constexpr double kStepTokens = 32768;  // 16 samples of 2048
  fs::path dir_;
  at::Device device_;
  std::vector<StateChunk> chunks_;
  int64_t bytes_ = 0, step_ = 0;
  int products_ = 60;  // of a step
  at::Tensor a_, product_;
  std::unique_ptr<std::byte[], void (*)(void*)> raw_memory_{
      static_cast<std::byte*>(std::aligned_alloc(kHugePage, kRawThreads* kRawBlock)), std::free};
  std::unique_ptr<BackgroundSave> saver_;
};

}  // namespace
}  // namespace neox

int main(int argc, char** argv) try {
  using namespace neox;
  keep_freed_memory(), use_cpu_arena();  // as neox-train
  check_usage(argc == 5, "checkpoint DIR SHAPE THREADS DEVICE");
  at::set_num_threads(std::atoi(argv[3]));
  at::Device device(argv[4]);
  if (device.is_cuda()) device = at::Device(at::kCUDA, 0);
  Driver driver(argv[1], find_shape(argv[2]), device);
  for (std::string command; std::getline(std::cin, command);) driver.run(command);
} catch (const std::exception& e) {
  std::fprintf(stderr, "checkpoint: %s\n", e.what());
  return 70;
}
