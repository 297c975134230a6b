#include "checkpoint/snapshot.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/error.h"
#include "base/tasks.h"
#include "checkpoint/copy.h"
#include "checkpoint/device_stream.h"
#include "checkpoint/pinned.h"
#include "checkpoint/raw_file.h"

namespace neox {
namespace {

constexpr size_t kThreads = 2;  // a second one still adds to the rate, and training computes on
constexpr size_t kCopiedAtOnce = size_t{4} << 20;
// Of new memory. While the kernel makes pages, threads of the process that ask for others may wait,
// such as the one that tells that this rank is alive.
constexpr size_t kPopulated = size_t{64} << 20;

size_t pages_of(const StateChunk& chunk) {
  size_t bytes = chunk.data.nbytes();
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

struct Piece {
  std::byte* to;
  const std::byte* from;
  size_t bytes;
};

}  // namespace

// Pages that are there, large ones where the system has them.
struct Snapshot::Memory {
  explicit Memory(size_t size) : bytes(std::max(size, kPageBytes)) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    data = static_cast<std::byte*>(at);
    ::madvise(data, bytes, MADV_HUGEPAGE);  // only a hint
    for (size_t from = 0; from < bytes; from += kPopulated)
      populate(from, std::min(kPopulated, bytes - from));
  }
  ~Memory() {
    if (pinned) unpin_memory(data);
    ::munmap(data, bytes);
  }
  void populate(size_t from, size_t count) {
    if (::madvise(data + from, count, MADV_POPULATE_WRITE) == 0) return;
    if (errno == ENOMEM || errno == EFAULT) {
      ::munmap(data, bytes);
      throw std::bad_alloc();
    }
    for (size_t i = 0; i < count; i += kPageBytes) data[from + i] = std::byte{0};  // before 5.14
  }

  std::byte* data = nullptr;
  size_t bytes;
  bool pinned = false;
};

struct Snapshot::Device {
  explicit Device(c10::Device device)
      : place(device),
        guard(device.type()),
        side(guard.getStreamFromGlobalPool(device)),
        copied(device.type()) {}
  // Threads begin on the first GPU, where these calls would take a context of another rank's
  // memory.
  bool pin(Memory& memory) const {
    c10::DeviceGuard on(place);
    return pin_memory(memory.data, memory.bytes);
  }
  void wait() const {
    c10::DeviceGuard on(place);
    copied.synchronize();
  }
  c10::Device place;
  c10::impl::VirtualGuardImpl guard;
  c10::Stream side;
  c10::Event copied;
};

Snapshot::Snapshot(std::span<const StateChunk> chunks) {
  memory_ = std::make_unique<Memory>(static_cast<size_t>(bytes_of(chunks)));
  std::byte* at = memory_->data;
  for (const StateChunk& chunk : chunks) {
    copies_.push_back(
        {chunk.buffer, chunk.state,
         at::from_blob(at, chunk.data.sizes(), at::TensorOptions().dtype(chunk.data.scalar_type())),
         chunk.placements});
    at += pages_of(chunk);
    if (chunk.data.is_cpu() || device_) continue;
    device_ = std::make_unique<Device>(chunk.data.device());
    memory_->pinned = device_->pin(*memory_);
  }
}

Snapshot::~Snapshot() = default;

int64_t Snapshot::bytes_of(std::span<const StateChunk> chunks) {
  size_t bytes = 0;
  for (const StateChunk& chunk : chunks) bytes += pages_of(chunk);
  return static_cast<int64_t>(bytes);
}

void Snapshot::start(std::span<const StateChunk> chunks) {
  check(chunks.size() == copies_.size(), "a snapshot of ", chunks.size(), " chunks into room for ",
        copies_.size());
  sources_.clear();
  for (size_t i = 0; i < chunks.size(); ++i) {
    check(chunks[i].data.sizes() == copies_[i].data.sizes() &&
              chunks[i].data.scalar_type() == copies_[i].data.scalar_type() &&
              chunks[i].data.is_contiguous(),
          chunks[i].buffer, "/", chunks[i].state, " is not what there is room for");
    copies_[i].placements = chunks[i].placements;
    sources_.push_back(chunks[i].data.detach());
  }
  set_copying(true);
  if (!device_) return;
  c10::AutoGradMode no_grad(false);
  c10::Event ready(device_->place.type());
  ready.record(device_->guard.getStream(device_->place));
  ready.block(device_->side);
  c10::StreamGuard on(device_->side);
  for (size_t i = 0; i < sources_.size(); ++i)
    if (!sources_[i].is_cpu()) copies_[i].data.copy_(sources_[i], true);
  device_->copied.record(device_->side);
}

void Snapshot::release() {
  std::unique_lock lock(mutex_);
  bool any_on_cpu =
      std::ranges::any_of(sources_, [](const at::Tensor& source) { return source.is_cpu(); });
  if (any_on_cpu) changed_.wait(lock, [&] { return !copying_; });
  if (device_ && !sources_.empty()) device_->copied.block(device_->guard.getStream(device_->place));
}

void Snapshot::copy_on_cpu() {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (!sources_[i].is_cpu()) continue;
    auto* to = static_cast<std::byte*>(copies_[i].data.mutable_data_ptr());
    const auto* from = static_cast<const std::byte*>(sources_[i].const_data_ptr());
    for (size_t at = 0, all = sources_[i].nbytes(); at < all; at += kCopiedAtOnce)
      pieces.push_back({to + at, from + at, std::min(kCopiedAtOnce, all - at)});
  }
  run_tasks(pieces.size(), kThreads,
            [&](size_t i) { copy_past_cache(pieces[i].to, pieces[i].from, pieces[i].bytes); });
}

void Snapshot::set_copying(bool copying) {
  std::lock_guard lock(mutex_);
  copying_ = copying;
  changed_.notify_all();
}

std::span<const StateChunk> Snapshot::finish() {
  try {
    copy_on_cpu();
    if (device_) device_->wait();
  } catch (...) {
    set_copying(false);
    throw;
  }
  set_copying(false);
  return copies_;
}

}  // namespace neox
