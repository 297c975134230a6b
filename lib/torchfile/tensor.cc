#include "torchfile/tensor.h"

#include <ATen/ops/conj_physical.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/neg.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace neox::torchfile {
namespace {

// In the order of DType.
constexpr at::ScalarType kScalarTypes[] = {
    at::kDouble,
    at::kFloat,
    at::kHalf,
    at::kBFloat16,
    at::kLong,
    at::kInt,
    at::kShort,
    at::kChar,
    at::kByte,
    at::kBool,
    at::kComplexDouble,
    at::kComplexFloat,
    at::kUInt64,
    at::kUInt32,
    at::kUInt16,
    at::kComplexHalf,
    at::kFloat8_e4m3fn,
    at::kFloat8_e5m2,
    at::kFloat8_e4m3fnuz,
    at::kFloat8_e5m2fnuz,
    at::kFloat8_e8m0fnu,
};

at::Tensor view(const std::byte* first, const TensorRef& tensor) {
  return at::from_blob(const_cast<std::byte*>(first), tensor.sizes, tensor.strides,
                       at::TensorOptions().dtype(scalar_type(tensor.dtype)));
}

// Bytes from the first to the last element.
size_t bytes_reached(const TensorRef& tensor) {
  int64_t last = 0;
  for (size_t d = 0; d < tensor.sizes.size(); ++d)
    last += (tensor.sizes[d] - 1) * tensor.strides[d];
  return static_cast<size_t>((last + 1) * info(tensor.dtype).bytes);
}

// With the bytes at another place, and in this machine's order.
at::Tensor copy(std::span<const std::byte> from, const TensorRef& tensor) {
  std::vector<std::byte> bytes(from.begin(), from.end());
  auto word = static_cast<std::ptrdiff_t>(info(tensor.dtype).word);
  if (tensor.storage->swapped)
    for (auto at = bytes.begin(); at != bytes.end(); at += word) std::reverse(at, at + word);
  return view(bytes.data(), tensor).clone();
}

}  // namespace

at::ScalarType scalar_type(DType dtype) { return kScalarTypes[static_cast<size_t>(dtype)]; }

DType dtype_of(at::ScalarType type) {
  const auto* found = std::find(std::begin(kScalarTypes), std::end(kScalarTypes), type);
  check(found != std::end(kScalarTypes), "tensors of type ", c10::toString(type),
        " cannot be written to PyTorch files");
  return static_cast<DType>(found - std::begin(kScalarTypes));
}

at::Tensor to_tensor(const TensorRef& tensor) {
  const DTypeInfo& type = info(tensor.dtype);
  if (tensor.numel() == 0)
    return at::empty_strided(tensor.sizes, tensor.strides,
                             at::TensorOptions().dtype(scalar_type(tensor.dtype)));
  std::span<const std::byte> bytes = tensor.storage->bytes.subspan(
      static_cast<size_t>(tensor.offset * type.bytes), bytes_reached(tensor));
  bool aligned =
      reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<uintptr_t>(type.bytes) == 0;
  bool plain = aligned && (!tensor.storage->swapped || type.word == 1);
  at::Tensor made = plain ? view(bytes.data(), tensor) : copy(bytes, tensor);
  if (tensor.conjugate) made = at::conj_physical(made);
  if (tensor.negative) made = at::neg(made);
  return made;
}

NewTensor new_tensor(const at::Tensor& tensor) {
  return {dtype_of(tensor.scalar_type()), tensor.sizes().vec(),
          [tensor](const NewTensor::Write& write) {
            at::Tensor whole = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
            write({static_cast<const std::byte*>(whole.const_data_ptr()), whole.nbytes()});
          }};
}

}  // namespace neox::torchfile
