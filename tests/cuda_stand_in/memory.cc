// Memory of the device, pinned memory, and copies.
#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <vector>

#include "machine.h"

namespace cuda_stand_in {
namespace {

constexpr size_t kPage = 4096;

struct Block {
  size_t bytes;
  bool on_device;
};

struct Memory {
  std::map<const char*, Block> blocks;  // by their first byte
  size_t on_device = 0;
};

Memory& memory() {
  static auto* all = new Memory;
  return *all;
}

const Block* block_of(const void* at) {
  const auto* byte = static_cast<const char*>(at);
  auto after = memory().blocks.upper_bound(byte);
  if (after == memory().blocks.begin()) return nullptr;
  auto found = std::prev(after);
  return byte < found->first + found->second.bytes ? &found->second : nullptr;
}

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

cudaError_t allocate(void** to, size_t bytes, bool on_device) {
  bytes = whole_pages(bytes);
  if (on_device && memory().on_device + bytes > device_memory()) {
    note("out of memory");
    return cudaErrorMemoryAllocation;
  }
  *to = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0);
  memory().blocks[static_cast<char*>(*to)] = {bytes, on_device};
  if (on_device) memory().on_device += bytes;
  return cudaSuccess;
}

cudaError_t release(void* block) {
  wait_for_all();
  auto found = memory().blocks.find(static_cast<char*>(block));
  if (found == memory().blocks.end())
    return refuse(cudaErrorInvalidValue, "memory that was not allocated is freed");
  if (found->second.on_device) memory().on_device -= found->second.bytes;
  ::munmap(block, found->second.bytes);
  memory().blocks.erase(found);
  return cudaSuccess;
}

void copy(void* to, const void* from, size_t bytes) { std::memmove(to, from, bytes); }

// The lists of CUDA_STAND_IN_READS, as the bytes of 8 for each number, by how many they are.
const std::map<size_t, std::vector<uint64_t>>& lists_to_read() {
  static const auto* lists = [] {
    const char* text = std::getenv("CUDA_STAND_IN_READS");
    std::istringstream parts(text ? text : "");
    auto* all = new std::map<size_t, std::vector<uint64_t>>;
    for (std::string part; std::getline(parts, part, ',');) {
      std::istringstream words(part);
      std::vector<uint64_t> list;
      for (std::string word; words >> word;)
        list.push_back(word.find('.') == std::string::npos
                           ? std::stoull(word)
                           : std::bit_cast<uint64_t>(std::stod(word)));
      all->emplace(8 * list.size(), list);
    }
    return all;
  }();
  return *lists;
}

void read_back(void* to, const void* from, size_t bytes) {
  auto list = lists_to_read().find(bytes);
  copy(to, list == lists_to_read().end() ? from : list->second.data(), bytes);
}

// Zeros in whole pages take no memory.
void fill(char* to, int value, size_t bytes) {
  char* begin = to + (kPage - reinterpret_cast<uintptr_t>(to) % kPage) % kPage;
  if (value == 0 && begin + kPage <= to + bytes) {
    size_t pages = static_cast<size_t>(to + bytes - begin) / kPage * kPage;
    std::memset(to, 0, static_cast<size_t>(begin - to));
    ::madvise(begin, pages, MADV_DONTNEED);
    bytes -= static_cast<size_t>(begin + pages - to);
    to = begin + pages;
  }
  std::memset(to, value, bytes);
}

}  // namespace

std::string kind_of(const void* at) {
  const Block* block = block_of(at);
  return !block ? "pageable" : block->on_device ? "device" : "pinned";
}

}  // namespace cuda_stand_in

using namespace cuda_stand_in;

extern "C" {

cudaError_t cudaMalloc(void** to, size_t bytes) {
  use_context("cudaMalloc");
  auto guard = lock();
  if (auto error = check_no_capture("cudaMalloc")) return error;
  note(concat("allocates ", bytes));
  return allocate(to, bytes, true);
}

cudaError_t cudaFree(void* block) {
  if (auto error = failure()) return error;
  auto guard = lock();
  if (!block) return cudaSuccess;
  if (auto error = check_no_capture("cudaFree")) return error;
  note("wait to free memory");
  return release(block);
}

cudaError_t cudaHostAlloc(void** to, size_t bytes, unsigned) {
  use_context("cudaHostAlloc");
  auto guard = lock();
  if (auto error = check_no_capture("cudaHostAlloc")) return error;
  note(concat("allocates pinned ", bytes));
  return allocate(to, bytes, false);
}

cudaError_t cudaFreeHost(void* block) {
  auto guard = lock();
  if (auto error = check_no_capture("cudaFreeHost")) return error;
  return release(block);
}

cudaError_t cudaHostRegister(void* block, size_t bytes, unsigned) {
  use_context("cudaHostRegister");
  auto guard = lock();
  note(concat("pins ", bytes));
  memory().blocks[static_cast<char*>(block)] = {bytes, false};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* block) {
  use_context("cudaHostUnregister");
  auto guard = lock();
  wait_for_all();
  memory().blocks.erase(static_cast<char*>(block));
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* left, size_t* all) {
  auto guard = lock();
  *left = device_memory() - memory().on_device;
  *all = device_memory();
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  auto guard = lock();
  const Block* block = block_of(at);
  *attributes = {};
  attributes->type = !block             ? cudaMemoryTypeUnregistered
                     : block->on_device ? cudaMemoryTypeDevice
                                        : cudaMemoryTypeHost;
  if (block) attributes->devicePointer = const_cast<void*>(at);
  if (block && !block->on_device) attributes->hostPointer = const_cast<void*>(at);
  return cudaSuccess;
}

// Of pageable memory at once, as CUDA stages it.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  use_context("cudaMemcpyAsync");
  auto guard = lock();
  std::string source = kind_of(from), target = kind_of(to),
              what = concat("copy of ", bytes, ", ", source, " to ", target);
  bool staged = source == "pageable" || target == "pageable";
  bool back = source == "device" && target != "device";
  if (staged && is_captured(stream))
    return refuse(cudaErrorStreamCaptureUnsupported, what + " in a capture");
  if (staged) {
    note("wait for a " + what);
    wait_for(stream);
    (back ? read_back : copy)(to, from, bytes);
    return cudaSuccess;
  }
  enqueue(stream, what, [=] { (back ? read_back : copy)(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  auto guard = lock();
  if (auto error = check_no_capture("cudaMemcpy")) return error;
  note(concat("wait for a copy of ", bytes));
  wait_for_all();
  copy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  auto guard = lock();
  enqueue(stream, concat("sets ", bytes), [=] { fill(static_cast<char*>(to), value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  auto guard = lock();
  if (auto error = check_no_capture("cudaMemset")) return error;
  wait_for_all();
  fill(static_cast<char*>(to), value, bytes);
  return cudaSuccess;
}

}  // extern "C"
