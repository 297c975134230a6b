#include "prepare/arrow/json_text.h"

#include <arrow/array.h>
#include <arrow/scalar.h>
#include <arrow/util/float16.h>

#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace neox {
namespace {

using arrow::Type;

// Whether a byte cannot stand in a JSON string as it is.
constexpr std::array<bool, 256> kEscaped = [] {
  std::array<bool, 256> escaped = {};
  for (int c = 0; c < 0x20; ++c) escaped[static_cast<size_t>(c)] = true;
  escaped['"'] = escaped['\\'] = true;
  return escaped;
}();

void append_escape(char c, std::string& json) {
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  constexpr const char* kDigits = "0123456789abcdef";
  if (size_t at = kNamed.find(c); at != kNamed.npos) {
    json += {'\\', kNames[at]};
    return;
  }
  json += "\\u00";
  json += {kDigits[c >> 4], kDigits[c & 15]};
}

template <class T>
void append_digits(T value, std::string& json) {
  char digits[32];
  json.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

// The shortest digits that are this number, with a point or an exponent.
void append_number(double value, std::string& json) {
  if (!std::isfinite(value)) {
    json += std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
    return;
  }
  size_t begin = json.size();
  append_digits(value, json);
  if (json.find_first_of(".e", begin) == json.npos) json += ".0";
}

template <class Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

// The values from .. to of what a list holds.
void append_list(const arrow::Array& values, int64_t from, int64_t to, std::string& json) {
  json += '[';
  for (int64_t i = from; i < to; ++i) {
    if (i > from) json += ", ";
    append_json(values, i, json);
  }
  json += ']';
}

template <class List>
void append_list(const List& list, int64_t row, std::string& json) {
  int64_t from = list.value_offset(row);
  append_list(*list.values(), from, from + list.value_length(row), json);
}

void append_map(const arrow::MapArray& map, int64_t row, std::string& json) {
  int64_t from = map.value_offset(row), to = from + map.value_length(row);
  json += '[';
  for (int64_t i = from; i < to; ++i) {
    json += i > from ? ", [" : "[";
    append_json(*map.keys(), i, json);
    json += ", ";
    append_json(*map.items(), i, json);
    json += ']';
  }
  json += ']';
}

void append_struct(const arrow::StructArray& structure, int64_t row, std::string& json) {
  json += '{';
  for (int i = 0; i < structure.num_fields(); ++i) {
    if (i > 0) json += ", ";
    append_json_string(structure.struct_type()->field(i)->name(), json);
    json += ": ";
    append_json(*structure.field(i), row, json);
  }
  json += '}';
}

// Dates, times and the like.
void append_other(const arrow::Array& array, int64_t row, std::string& json) {
  auto scalar = array.GetScalar(row);
  check_io(scalar.ok(), scalar.status().ToString());
  append_json_string((*scalar)->ToString(), json);
}

double half_at(const arrow::HalfFloatArray& array, int64_t row) {
  return arrow::util::Float16::FromBits(array.Value(row)).ToDouble();
}

// Whether it is a whole or decimal number, which is then written.
bool append_exact(const arrow::Array& array, int64_t row, std::string& json) {
  auto take = [&](auto value) {
    append_digits(value, json);
    return true;
  };
  auto take_digits = [&](const std::string& digits) {
    json += digits;
    return true;
  };
  switch (array.type_id()) {
    case Type::DECIMAL32:
      return take_digits(as<arrow::Decimal32Array>(array).FormatValue(row));
    case Type::DECIMAL64:
      return take_digits(as<arrow::Decimal64Array>(array).FormatValue(row));
    case Type::DECIMAL128:
      return take_digits(as<arrow::Decimal128Array>(array).FormatValue(row));
    case Type::DECIMAL256:
      return take_digits(as<arrow::Decimal256Array>(array).FormatValue(row));
    case Type::INT8:
      return take(as<arrow::Int8Array>(array).Value(row));
    case Type::INT16:
      return take(as<arrow::Int16Array>(array).Value(row));
    case Type::INT32:
      return take(as<arrow::Int32Array>(array).Value(row));
    case Type::INT64:
      return take(as<arrow::Int64Array>(array).Value(row));
    case Type::UINT8:
      return take(as<arrow::UInt8Array>(array).Value(row));
    case Type::UINT16:
      return take(as<arrow::UInt16Array>(array).Value(row));
    case Type::UINT32:
      return take(as<arrow::UInt32Array>(array).Value(row));
    case Type::UINT64:
      return take(as<arrow::UInt64Array>(array).Value(row));
    default:
      return false;
  }
}

// The same of texts and bytes.
bool append_text(const arrow::Array& array, int64_t row, std::string& json) {
  auto take = [&](std::string_view value) {
    append_json_string(value, json);
    return true;
  };
  switch (array.type_id()) {
    case Type::STRING:
    case Type::BINARY:
      return take(as<arrow::BinaryArray>(array).GetView(row));
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return take(as<arrow::LargeBinaryArray>(array).GetView(row));
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW:
      return take(as<arrow::BinaryViewArray>(array).GetView(row));
    case Type::FIXED_SIZE_BINARY:
      return take(as<arrow::FixedSizeBinaryArray>(array).GetView(row));
    default:
      return false;
  }
}

}  // namespace

void append_json_string(std::string_view text, std::string& json) {
  json += '"';
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && !kEscaped[static_cast<uint8_t>(text[end])]) ++end;
    json += text.substr(begin, end - begin);
    if (end < text.size()) append_escape(text[end++], json);
    begin = end;
  }
  json += '"';
}

void append_json(const arrow::Array& array, int64_t row, std::string& json) {
  if (array.IsNull(row)) {
    json += "null";
    return;
  }
  if (append_text(array, row, json) || append_exact(array, row, json)) return;
  switch (array.type_id()) {
    case Type::BOOL:
      json += as<arrow::BooleanArray>(array).Value(row) ? "true" : "false";
      return;
    case Type::HALF_FLOAT:
      return append_number(half_at(as<arrow::HalfFloatArray>(array), row), json);
    case Type::FLOAT:
      return append_number(as<arrow::FloatArray>(array).Value(row), json);
    case Type::DOUBLE:
      return append_number(as<arrow::DoubleArray>(array).Value(row), json);
    case Type::LIST:
      return append_list(as<arrow::ListArray>(array), row, json);
    case Type::LARGE_LIST:
      return append_list(as<arrow::LargeListArray>(array), row, json);
    case Type::FIXED_SIZE_LIST:
      return append_list(as<arrow::FixedSizeListArray>(array), row, json);
    case Type::LIST_VIEW:
      return append_list(as<arrow::ListViewArray>(array), row, json);
    case Type::LARGE_LIST_VIEW:
      return append_list(as<arrow::LargeListViewArray>(array), row, json);
    case Type::MAP:
      return append_map(as<arrow::MapArray>(array), row, json);
    case Type::STRUCT:
      return append_struct(as<arrow::StructArray>(array), row, json);
    case Type::DICTIONARY: {
      const auto& words = as<arrow::DictionaryArray>(array);
      return append_json(*words.dictionary(), words.GetValueIndex(row), json);
    }
    case Type::EXTENSION:
      return append_json(*as<arrow::ExtensionArray>(array).storage(), row, json);
    default:
      return append_other(array, row, json);
  }
}

}  // namespace neox
