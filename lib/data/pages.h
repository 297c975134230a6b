// A large array that is read and written at random: in huge pages where the system has them.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace neox {

template <class T>
class Pages {
 public:
  Pages() = default;
  // Zeros. Throws Error (70) where there is not so much memory.
  explicit Pages(int64_t size) : size_(static_cast<size_t>(size)) {
    if (size_ == 0) return;
    void* p = ::mmap(nullptr, size_ * sizeof(T), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(p != MAP_FAILED, "no memory for ", human_bytes(static_cast<double>(size_ * sizeof(T))),
          " of a sample index");
    data_ = static_cast<T*>(p);
    ::madvise(p, size_ * sizeof(T), MADV_HUGEPAGE);
  }
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Pages() {
    if (data_) ::munmap(data_, size_ * sizeof(T));
  }

  std::span<T> span() const { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace neox
