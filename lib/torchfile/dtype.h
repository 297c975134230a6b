// The element types of PyTorch's tensors, as its files name them.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace neox::torchfile {

enum class DType {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
  kComplex128,
  kComplex64,
  kUInt64,
  kUInt32,
  kUInt16,
  kComplex32,
  kFloat8E4M3Fn,
  kFloat8E5M2,
  kFloat8E4M3FnUz,
  kFloat8E5M2FnUz,
  kFloat8E8M0Fnu,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;     // "float32": torch.float32
  std::string_view storage;  // "FloatStorage": torch.FloatStorage; "": none, UntypedStorage is used
  int64_t bytes;             // of an element
  int64_t word;              // bytes of a number whose byte order matters: half a complex number
};

// In the order of the enum.
std::span<const DTypeInfo> dtypes();
const DTypeInfo& info(DType dtype);

// Nothing for what is no type here.
std::optional<DType> dtype_named(std::string_view name);          // "float32"
std::optional<DType> dtype_of_storage(std::string_view storage);  // "FloatStorage"

}  // namespace neox::torchfile
