#include "generate/huge_pages.h"

#include <sys/mman.h>

namespace neox {

void use_huge_pages(void* data, int64_t bytes) {
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, from Linux 6.1 on; others say that it is invalid
  auto first = reinterpret_cast<uintptr_t>(data);
  uintptr_t from = (first + kPage - 1) / kPage * kPage,
            to = (first + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  if (from >= to) return;
  void* pages = reinterpret_cast<void*>(from);
  ::madvise(pages, to - from, MADV_HUGEPAGE);
  ::madvise(pages, to - from, kCollapse);
}

void use_huge_pages(GptNeoX& model) {
  if (!model.hidden_options().device().is_cpu()) return;
  for (ParamBuffer* buffer : model.buffers())
    for (size_t i = 0; i < buffer->specs().size(); ++i) {
      const at::Tensor& p = buffer->param(i);
      use_huge_pages(p.mutable_data_ptr(), static_cast<int64_t>(p.nbytes()));
    }
}

}  // namespace neox
