#include "ops/cpu_arena.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace neox {
namespace {

constexpr size_t kLarge = 256 << 10;  // bytes from which on a tensor lies in the arena
constexpr size_t kLine = 64;          // alignment: a cache line
constexpr size_t kGap = 2 * kLine;  // between tensors, so that not all begin at the same cache sets
constexpr size_t kHugePage = 2 << 20;
// Tensors of this size begin at a page, so that a disk takes them from where they lie (O_DIRECT).
constexpr size_t kDirect = 4 << 20, kPage = 4096;

c10::Device cpu() { return c10::Device(c10::DeviceType::CPU); }

class Arena : public c10::Allocator {
 public:
  // `base`: the start of `size` bytes of addresses, a multiple of kHugePage.
  Arena(char* base, size_t size, c10::Allocator& small) : base_(base), size_(size), small_(small) {
    free_[0] = size;
  }

  c10::DataPtr allocate(size_t n) override {
    if (n < kLarge) return small_.allocate(n);
    char* at = base_ + take((n + kLine - 1) / kLine * kLine + kGap, n < kDirect ? kLine : kPage);
    report(at, static_cast<int64_t>(n));
    return {at, at, &give_back, cpu()};
  }
  // For ATen's kernels that take memory without a tensor.
  c10::DeleterFnPtr raw_deleter() const override { return &give_back_raw; }
  void copy_data(void* to, const void* from, size_t n) const override {
    default_copy_data(to, from, n);
  }

  bool holds(const char* data) const { return data >= base_ && data < base_ + size_; }

  // Of the memory that begins here, and lies in the arena: the bytes that had been in use before it
  // was taken. Those behind them are the kernel's zeros.
  size_t stale(const char* data) {
    std::lock_guard lock(mutex_);
    return used_.at(static_cast<size_t>(data - base_)).stale;
  }

  static Arena* the;  // tensors outlive everything else, and so does their memory

 private:
  // n bytes at a multiple of `alignment`.
  size_t take(size_t n, size_t alignment) {
    auto begin = [&](size_t at) { return (at + alignment - 1) / alignment * alignment; };
    std::lock_guard lock(mutex_);
    auto hole = std::ranges::find_if(
        free_, [&](const auto& h) { return begin(h.first) + n <= h.first + h.second; });
    check(hole != free_.end(), "out of memory: no ", n, " bytes for a tensor");
    auto [from, size] = *hole;
    size_t at = begin(from), end = from + size;
    free_.erase(hole);
    if (at > from) free_[from] = at - from;
    if (end > at + n) free_[at + n] = end - at - n;
    used_[at] = {n, at < ever_used_ ? std::min(n, ever_used_ - at) : 0};
    ever_used_ = std::max(ever_used_, at + n);
    return at;
  }

  static void give_back(void* data) {
    std::lock_guard lock(the->mutex_);
    auto at = static_cast<size_t>(static_cast<char*>(data) - the->base_);
    auto block = the->used_.find(at);
    size_t n = block->second.bytes;
    the->used_.erase(block);
    report(data, -static_cast<int64_t>(n));
    the->join(at, n);
  }

  static void give_back_raw(void* data) {
    the->holds(static_cast<char*>(data)) ? give_back(data) : the->small_.raw_deleter()(data);
  }

  // A hole [at, at + n), with those that it touches.
  void join(size_t at, size_t n) {
    auto next = free_.lower_bound(at);
    if (next != free_.end() && next->first == at + n) {
      n += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == at) {
        before->second += n;
        return;
      }
    }
    free_[at] = n;
  }

  static void report(void* data, int64_t change) {
    if (c10::memoryProfilingEnabled()) c10::reportMemoryUsageToProfiler(data, change, 0, 0, cpu());
  }

  struct Block {
    size_t bytes, stale;
  };

  char* base_;
  size_t size_, ever_used_ = 0;  // behind that no byte was ever given away
  c10::Allocator& small_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  // start: bytes
  std::map<size_t, Block> used_;   // start: what
};

Arena* Arena::the = nullptr;

}  // namespace

void use_cpu_arena() {
  if (Arena::the) return;
  auto memory =
      static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  size_t size = 2 * memory / kHugePage * kHugePage;  // addresses, of which holes take some
  void* found = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED)
    return log_warning("no address space of ", human_bytes(static_cast<double>(size)),
                       " for tensors, so steps will be slower; raise ulimit -v");
  auto address = reinterpret_cast<uintptr_t>(found);
  char* base = static_cast<char*>(found) + (kHugePage - address % kHugePage) % kHugePage;
  ::madvise(base, size, MADV_HUGEPAGE);  // where the kernel has them
  Arena::the = new Arena(base, size, *c10::GetDefaultCPUAllocator());
  c10::SetCPUAllocator(Arena::the, 1);
}

at::Tensor untouched_zeros(int64_t n, const at::TensorOptions& options) {
  at::Tensor x = at::empty({n}, options);
  auto* data = static_cast<char*>(x.mutable_data_ptr());
  if (!Arena::the || !Arena::the->holds(data)) return x.zero_();
  std::memset(data, 0, std::min(Arena::the->stale(data), x.nbytes()));
  return x;
}

}  // namespace neox
