#include "cuda_on_cpu/device.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

// AddressSanitizer wants to know of fibers; null without it.
extern "C" [[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake, const void* stack,
                                                             size_t size);
extern "C" [[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake, const void** stack,
                                                              size_t* size);

namespace cuda_on_cpu {
namespace {

constexpr unsigned kMostThreads = 1024, kWarp = 32;
constexpr size_t kMostShared = 48 * 1024, kMostAllowed = 227 * 1024;
// Not a power of two: the tops of all stacks would share the same sets of a cache.
constexpr size_t kStack = 128 * 1024 + 320;

// A place where threads wait until `here` of them are as many as all.
struct Meeting {
  int64_t passed = 0;
  unsigned here = 0;
  std::source_location where;
};

struct Fiber {
  void* at[5];  // of __builtin_setjmp
  bool begun, ended;
  uint3 index;
  const Meeting* waits_for;
  int64_t passed;  // of that meeting, when it began to wait
  bool ready() const { return !ended && (!waits_for || waits_for->passed != passed); }
};

struct Warp {
  Meeting meeting;
  uint64_t brought[2][kWarp];  // two, because a lane may be one exchange ahead
};

struct Block {
  std::unique_ptr<std::byte[]> stacks;
  std::array<Fiber, kMostThreads> fibers;
  std::array<Warp, kMostThreads / kWarp> warps;
  Meeting meeting;
  unsigned threads, current;
  const std::function<void()>* work;
  std::exception_ptr fault;
  void* scheduler[5];
  const void* main_stack;
  size_t main_size;
  void* main_fake;
};
Block block;

void entered(void* fake, const void** stack, size_t* size) {
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, stack, size);
}

// A function of its own, because none may jump to its own __builtin_setjmp.
[[gnu::noinline]] void jump(void** to) { __builtin_longjmp(to, 1); }

[[gnu::noinline]] void to_scheduler() {
  void* fake = nullptr;
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(&fake, block.main_stack, block.main_size);
  if (__builtin_setjmp(block.fibers[block.current].at) == 0) jump(block.scheduler);
  entered(fake, &block.main_stack, &block.main_size);
}

void fiber_main() {
  entered(nullptr, &block.main_stack, &block.main_size);
  for (;; to_scheduler()) {
    try {
      (*block.work)();
    } catch (...) { block.fault = std::current_exception(); }
    block.fibers[block.current].ended = true;
  }
}

[[gnu::noinline]] void begin(std::byte* stack) {
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = kStack;
  makecontext(&context, fiber_main, 0);
  setcontext(&context);
}

[[gnu::noinline]] void to_fiber(unsigned i) {
  block.current = i;
  threadIdx = block.fibers[i].index;
  std::byte* stack = block.stacks.get() + i * kStack;
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(&block.main_fake, stack, kStack);
  if (__builtin_setjmp(block.scheduler) == 0) {
    if (!std::exchange(block.fibers[i].begun, true)) begin(stack);
    jump(block.fibers[i].at);
  }
  entered(block.main_fake, nullptr, nullptr);
}

std::string text(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

void meet(Meeting& meeting, unsigned all, const std::source_location& where) {
  if (meeting.here > 0 && meeting.where.line() != where.line())
    throw Fault("threads meet at " + text(where) + ", others at " + text(meeting.where));
  meeting.where = where;
  if (++meeting.here == all) {
    meeting.here = 0;
    ++meeting.passed;
    return;
  }
  Fiber& mine = block.fibers[block.current];
  mine.waits_for = &meeting;
  mine.passed = meeting.passed;
  to_scheduler();
}

[[noreturn]] void fail_waiting() {
  for (unsigned i = 0; i < block.threads; ++i)
    if (const Fiber& f = block.fibers[i]; !f.ended)
      throw Fault("thread " + std::to_string(i) + " waits at " + text(f.waits_for->where) +
                  " for threads that do not come");
  throw Fault("no thread");
}

std::vector<unsigned> ordered(unsigned n) {
  std::vector<unsigned> all(n);
  std::iota(all.begin(), all.end(), 0);
  if (device.order == Order::kReversed) std::ranges::reverse(all);
  if (device.order == Order::kShuffled) std::ranges::shuffle(all, std::mt19937(n));
  return all;
}

void run_block(const std::vector<unsigned>& order) {
  ++device.blocks;
  device.shared_bytes = 0;
  block.meeting = {};
  for (Warp& warp : block.warps) warp.meeting = {};
  for (unsigned i = 0; i < block.threads; ++i) {
    Fiber& f = block.fibers[i];
    f.ended = false;
    f.waits_for = nullptr;
    f.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
  }
  for (unsigned left = block.threads; left > 0;) {
    bool moved = false;
    for (unsigned i : order) {
      if (!block.fibers[i].ready()) continue;
      moved = true;
      to_fiber(i);
      if (block.fault) std::rethrow_exception(std::exchange(block.fault, nullptr));
      left -= block.fibers[i].ended;
    }
    if (!moved) fail_waiting();
  }
}

}  // namespace

void run_grid(dim3 grid, dim3 threads, const std::function<void()>& thread) {
  constexpr unsigned kMostX = 0x7FFFFFFF, kMostYZ = 65535;
  uint64_t size = uint64_t{threads.x} * threads.y * threads.z,
           blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (size == 0 || size > kMostThreads || threads.z > 64 || blocks == 0 || grid.x > kMostX ||
      grid.y > kMostYZ || grid.z > kMostYZ) {
    device.error = cudaErrorInvalidConfiguration;
    return;
  }
  if (!block.stacks) {
    block.stacks = std::make_unique_for_overwrite<std::byte[]>(kMostThreads * kStack);
    for (Fiber& f : block.fibers) f.begun = false;
  }
  block.work = &thread;
  block.threads = static_cast<unsigned>(size);
  gridDim = grid;
  blockDim = threads;
  std::vector<unsigned> order = ordered(block.threads);
  try {
    for (unsigned i : ordered(static_cast<unsigned>(blocks))) {
      blockIdx = {i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y};
      run_block(order);
    }
    device.allowed_bytes = 0;
  } catch (...) {
    block.stacks.reset();  // threads are left in the middle of the kernel
    throw;
  }
}

void check_bounds(unsigned threads, unsigned) {
  if (block.threads > threads)
    throw Fault("a block of " + std::to_string(block.threads) + " threads of a kernel for " +
                std::to_string(threads));
}

void take_shared(size_t bytes) {
  device.shared_bytes += bytes;
  if (device.shared_bytes > std::max(kMostShared, device.allowed_bytes + kMostShared / 8) ||
      device.shared_bytes > kMostAllowed)
    throw Fault("a block takes " + std::to_string(device.shared_bytes) + " bytes of shared memory");
}

void* dynamic_shared() {
  alignas(16) static std::byte memory[kMostAllowed];
  static int64_t of_block = -1;
  if (std::exchange(of_block, device.blocks) != device.blocks) {
    take_shared(device.dynamic_bytes);
    std::memset(memory, 0xFF, device.dynamic_bytes);
  }
  return memory;
}

void fail_alignment(const void* at, size_t alignment) {
  throw Fault("an access at " + std::to_string(reinterpret_cast<uintptr_t>(at)) +
              " which is not a multiple of " + std::to_string(alignment));
}

uint64_t exchange(uint64_t mine, unsigned mask, unsigned lanes, const std::source_location& where) {
  if (mask != 0xFFFFFFFF) throw Fault("only whole warps exchange values");
  unsigned lane = block.current % kWarp;
  Warp& warp = block.warps[block.current / kWarp];
  uint64_t* brought = warp.brought[warp.meeting.passed % 2];
  brought[lane] = mine;
  meet(warp.meeting, kWarp, where);
  return brought[lane ^ lanes];
}

void meet_block(const std::source_location& where) { meet(block.meeting, block.threads, where); }

}  // namespace cuda_on_cpu
