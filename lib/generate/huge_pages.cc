#include "generate/huge_pages.h"

#include <sys/mman.h>

namespace neox {

void use_huge_pages(void* data, int64_t bytes) {
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, from Linux 6.1 on; others say that it is invalid
  auto first = reinterpret_cast<uintptr_t>(data);
  // Pages at the ends may hold other memory too, or none, in which case the kernel leaves them
  // alone.
  uintptr_t from = first / kPage * kPage, end = first + static_cast<uintptr_t>(bytes);
  for (uintptr_t at = from; at < end; at += kPage) {
    void* page = reinterpret_cast<void*>(at);
    ::madvise(page, kPage, MADV_HUGEPAGE);
    ::madvise(page, kPage, kCollapse);
  }
}

void use_huge_pages(GptNeoX& model) {
  if (!model.hidden_options().device().is_cpu()) return;
  for (ParamBuffer* buffer : model.buffers()) {
    at::Storage all = buffer->param(0).storage();  // parameters are views of one flat buffer
    use_huge_pages(all.mutable_data(), static_cast<int64_t>(all.nbytes()));
  }
}

}  // namespace neox
