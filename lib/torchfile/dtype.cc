#include "torchfile/dtype.h"

#include <algorithm>

namespace neox::torchfile {
namespace {

constexpr DTypeInfo kTypes[] = {
    {DType::kFloat64, "float64", "DoubleStorage", 8, 8},
    {DType::kFloat32, "float32", "FloatStorage", 4, 4},
    {DType::kFloat16, "float16", "HalfStorage", 2, 2},
    {DType::kBFloat16, "bfloat16", "BFloat16Storage", 2, 2},
    {DType::kInt64, "int64", "LongStorage", 8, 8},
    {DType::kInt32, "int32", "IntStorage", 4, 4},
    {DType::kInt16, "int16", "ShortStorage", 2, 2},
    {DType::kInt8, "int8", "CharStorage", 1, 1},
    {DType::kUInt8, "uint8", "ByteStorage", 1, 1},
    {DType::kBool, "bool", "BoolStorage", 1, 1},
    {DType::kComplex128, "complex128", "ComplexDoubleStorage", 16, 8},
    {DType::kComplex64, "complex64", "ComplexFloatStorage", 8, 4},
    {DType::kUInt64, "uint64", "", 8, 8},
    {DType::kUInt32, "uint32", "", 4, 4},
    {DType::kUInt16, "uint16", "", 2, 2},
    {DType::kComplex32, "complex32", "", 4, 2},
    {DType::kFloat8E4M3Fn, "float8_e4m3fn", "", 1, 1},
    {DType::kFloat8E5M2, "float8_e5m2", "", 1, 1},
    {DType::kFloat8E4M3FnUz, "float8_e4m3fnuz", "", 1, 1},
    {DType::kFloat8E5M2FnUz, "float8_e5m2fnuz", "", 1, 1},
    {DType::kFloat8E8M0Fnu, "float8_e8m0fnu", "", 1, 1},
};

std::optional<DType> find(std::string_view DTypeInfo::*member, std::string_view text) {
  if (text.empty()) return {};
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const DTypeInfo& type) { return type.*member == text; });
  if (found == std::end(kTypes)) return {};
  return found->dtype;
}

}  // namespace

std::span<const DTypeInfo> dtypes() { return kTypes; }
const DTypeInfo& info(DType dtype) { return kTypes[static_cast<size_t>(dtype)]; }
std::optional<DType> dtype_named(std::string_view name) { return find(&DTypeInfo::name, name); }
std::optional<DType> dtype_of_storage(std::string_view storage) {
  return find(&DTypeInfo::storage, storage);
}

}  // namespace neox::torchfile
