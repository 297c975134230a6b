// What benchmarks/checkpoint.py asks of neox.cpp: the training state of a Pythia shape (bf16
// weights, fp32 master, m, v), saved and loaded, beside the disk's own rate. Reads commands from
// stdin, each answered by a line of JSON: write, async, load, raw_write, raw_read, copy.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

std::vector<StateChunk> state_of(const Shape& shape) {
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
      chunk.data = at::rand({size}, at::TensorOptions().dtype(type));
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
  Driver(fs::path dir, const Shape& shape) : dir_(std::move(dir)), chunks_(state_of(shape)) {
    for (const StateChunk& chunk : chunks_) bytes_ += static_cast<int64_t>(chunk.data.nbytes());
    ::madvise(raw_memory_.get(), kRawThreads * kRawBlock, MADV_HUGEPAGE);  // the disk's best
    std::memset(raw_memory_.get(), 1, kRawThreads * kRawBlock);
    a_ = at::rand({1024, 1024}, at::kFloat);
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
  // What the processor does in a step, about.
  double compute() const {
    auto start = Clock::now();
    for (int i = 0; i < 60; ++i) at::mm(a_, a_);
    return since(start);
  }
  // Steps before, and while a save is written: where it stalls them, and what they lose.
  void async() {
    std::vector<double> before;
    for (int i = 0; i < kStepsBefore; ++i) before.push_back(compute());
    std::ranges::sort(before);
    auto start = Clock::now();
    saver_->start(chunks_, next_state());
    double stall = since(start), computed = compute();
    auto release = Clock::now();
    saver_->release();
    stall += since(release);
    int steps = 1;
    for (; saver_->under_way() && !saver_->poll(); ++steps) computed += compute();
    double lost = computed - steps * before[kStepsBefore / 2];
    say("async", since(start), bytes_,
        concat(", \"stall\": ", stall, ", \"steps\": ", steps,
               ", \"step\": ", before[kStepsBefore / 2], ", \"lost_in_steps\": ", lost));
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

  fs::path dir_;
  std::vector<StateChunk> chunks_;
  int64_t bytes_ = 0, step_ = 0;
  at::Tensor a_;
  std::unique_ptr<std::byte[], void (*)(void*)> raw_memory_{
      static_cast<std::byte*>(std::aligned_alloc(kHugePage, kRawThreads* kRawBlock)), std::free};
  std::unique_ptr<BackgroundSave> saver_;
};

}  // namespace
}  // namespace neox

int main(int argc, char** argv) try {
  using namespace neox;
  keep_freed_memory(), use_cpu_arena();  // as neox-train
  check_usage(argc == 4, "checkpoint DIR SHAPE THREADS");
  at::set_num_threads(std::atoi(argv[3]));
  Driver driver(argv[1], find_shape(argv[2]));
  for (std::string command; std::getline(std::cin, command);) driver.run(command);
} catch (const std::exception& e) {
  std::fprintf(stderr, "checkpoint: %s\n", e.what());
  return 70;
}
