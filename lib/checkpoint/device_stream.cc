#include "checkpoint/device_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace neox {

std::optional<c10::Stream> current_stream(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

}  // namespace neox
