// Threads that copy from and to tensors of a device do it on the stream of the thread that they
// work for, so that it comes after what that one has started.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>

namespace neox {

// This thread's stream on the device of the tensor; none for the CPU.
std::optional<c10::Stream> current_stream(const at::Tensor& tensor);

}  // namespace neox
