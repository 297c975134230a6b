// NumPy's scalars and arrays, as its versions 1 and 2 pickle them.
#include <cmath>

#include "torchfile/builder.h"
#include "torchfile/bytes.h"

namespace neox::torchfile {
namespace {

struct NumpyType {
  std::string_view name;
  DType dtype;
};

constexpr NumpyType kNumpyTypes[] = {
    {"f8", DType::kFloat64},   {"f4", DType::kFloat32},     {"f2", DType::kFloat16},
    {"i8", DType::kInt64},     {"i4", DType::kInt32},       {"i2", DType::kInt16},
    {"i1", DType::kInt8},      {"u1", DType::kUInt8},       {"u2", DType::kUInt16},
    {"u4", DType::kUInt32},    {"u8", DType::kUInt64},      {"b1", DType::kBool},
    {"c8", DType::kComplex64}, {"c16", DType::kComplex128},
};

struct ElementType {
  DType dtype;
  bool swapped;
};

// dtype("f8", False, True) with the state (3, "<", ...); nothing for texts, objects and records.
std::optional<ElementType> element_type(Value dtype) {
  if (dtype.type() != "numpy.dtype" || dtype.arguments().items().empty()) return {};
  Value name = dtype.arguments().items()[0];
  if (!name.is(Kind::kString)) return {};
  std::span<const Value> state = dtype.state().items();
  bool swapped = state.size() > 1 && state[1].is(Kind::kString) && state[1].text() == ">";
  for (const NumpyType& type : kNumpyTypes)
    if (type.name == name.text()) return ElementType{type.dtype, swapped};
  return {};
}

double from_half(uint16_t bits) {
  int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24));
}

Node* unsigned_value(Builder& builder, uint64_t value) {
  if (value <= INT64_MAX) return builder.make(Kind::kInt, static_cast<int64_t>(value));
  std::ostringstream text;
  text << "0x" << std::hex << value;
  return builder.make(Kind::kBigInt, builder.keep(text.str()));
}

template <class T>
Node* int_value(Builder& builder, std::span<const std::byte> bytes) {
  return builder.make(Kind::kInt, static_cast<int64_t>(little<T>(bytes)));
}
template <class T>
Node* float_value(Builder& builder, std::span<const std::byte> bytes) {
  return builder.make(Kind::kFloat, static_cast<double>(little<T>(bytes)));
}
template <class T>
Node* complex_value(Builder& builder, std::span<const std::byte> bytes) {
  return builder.make(Kind::kComplex,
                      std::complex<double>(little<T>(bytes), little<T>(bytes.subspan(sizeof(T)))));
}

// The number in little-endian bytes.
Node* value_of(Builder& builder, DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kBool:
      return builder.make(Kind::kBool, bytes[0] != std::byte{0});
    case DType::kFloat64:
      return float_value<double>(builder, bytes);
    case DType::kFloat32:
      return float_value<float>(builder, bytes);
    case DType::kFloat16:
      return builder.make(Kind::kFloat, from_half(little<uint16_t>(bytes)));
    case DType::kInt64:
      return int_value<int64_t>(builder, bytes);
    case DType::kInt32:
      return int_value<int32_t>(builder, bytes);
    case DType::kInt16:
      return int_value<int16_t>(builder, bytes);
    case DType::kInt8:
      return int_value<int8_t>(builder, bytes);
    case DType::kUInt8:
      return int_value<uint8_t>(builder, bytes);
    case DType::kUInt16:
      return int_value<uint16_t>(builder, bytes);
    case DType::kUInt32:
      return int_value<uint32_t>(builder, bytes);
    case DType::kUInt64:
      return unsigned_value(builder, little<uint64_t>(bytes));
    case DType::kComplex64:
      return complex_value<float>(builder, bytes);
    case DType::kComplex128:
      return complex_value<double>(builder, bytes);
    default:
      return nullptr;
  }
}

// Bytes, or a text of Python 2.
std::optional<std::span<const std::byte>> raw_bytes(Value value) {
  if (!value.is(Kind::kBytes) && !value.is(Kind::kString)) return {};
  return bytes_of(value.text());
}

// (dtype, bytes)
Node* scalar(Builder& builder, std::span<const Value> a) {
  if (a.size() != 2) return nullptr;
  std::optional<ElementType> type = element_type(a[0]);
  auto bytes = raw_bytes(a[1]);
  if (!type || !bytes) return nullptr;
  const DTypeInfo& known = info(type->dtype);
  builder.check_pickle(bytes->size() == static_cast<size_t>(known.bytes), "a NumPy scalar of type ",
                       known.name, " has ", bytes->size(), " bytes");
  std::vector<std::byte> swapped(bytes->begin(), bytes->end());
  auto word = static_cast<std::ptrdiff_t>(known.word);
  for (auto at = swapped.begin(); type->swapped && at != swapped.end(); at += word)
    std::reverse(at, at + word);
  return value_of(builder, type->dtype, swapped);
}

// (class, shape, type): an array that gets its shape and bytes as its state.
Node* reconstruct_array(Builder& builder, std::span<const Value> a) {
  bool plain = a.size() == 3 && a[0].is(Kind::kGlobal) && a[0].text() == "numpy.ndarray";
  return plain ? builder.make_object(kEmptyArray, {}) : nullptr;
}

// (bytes, dtype, shape, order)
Node* from_buffer(Builder& builder, std::span<const Value> a) {
  if (a.size() != 4 || !a[3].is(Kind::kString)) return nullptr;
  std::optional<ElementType> type = element_type(a[1]);
  auto bytes = raw_bytes(a[0]);
  if (!type || !bytes) return nullptr;
  return builder.make_array(type->dtype, type->swapped, *bytes, builder.sizes_of(a[2]),
                            a[3].text() == "F");
}

const NamedMeaning kNumpy[] = {
    {"numpy._core.multiarray.scalar", scalar},
    {"numpy._core.multiarray._reconstruct", reconstruct_array},
    {"numpy._core.numeric._frombuffer", from_buffer},
};

}  // namespace

std::span<const NamedMeaning> numpy_meanings() { return kNumpy; }

Node* Builder::make_array(DType dtype, bool swapped, std::span<const std::byte> bytes,
                          std::vector<int64_t> sizes, bool fortran) {
  Storage storage = {"", "cpu", dtype, bytes, swapped};
  TensorRef array = {&document_.storages.emplace_back(std::move(storage)), dtype, std::move(sizes)};
  array.of = TensorRef::Class::kArray;
  array.strides.resize(array.sizes.size());
  int64_t stride = 1;
  for (size_t i = 0; i < array.sizes.size(); ++i) {
    size_t d = fortran ? i : array.sizes.size() - 1 - i;
    array.strides[d] = stride;
    check_pickle(!__builtin_mul_overflow(stride, std::max<int64_t>(array.sizes[d], 1), &stride),
                 "a NumPy array is larger than any memory");
  }
  Node* made = make_tensor(std::move(array));
  const TensorRef& tensor = *std::get<const TensorRef*>(made->data);
  check_pickle(tensor.numel() * info(dtype).bytes == static_cast<int64_t>(bytes.size()),
               "a NumPy array has ", bytes.size(), " bytes for ", tensor.numel(), " elements of ",
               info(dtype).bytes, " bytes");
  return made;
}

// (version, shape, dtype, is_fortran, bytes)
void build_array(Builder& builder, Node& array, Value state) {
  builder.parts_of(array).state = state;
  std::span<const Value> a = state.items();
  if (a.size() != 5 || !a[3].is(Kind::kBool)) return;
  std::optional<ElementType> type = element_type(a[2]);
  auto bytes = raw_bytes(a[4]);
  if (!type || !bytes) return;
  Node* made = builder.make_array(type->dtype, type->swapped, *bytes, builder.sizes_of(a[1]),
                                  a[3].as_bool());
  array = std::move(*made);
}

}  // namespace neox::torchfile
