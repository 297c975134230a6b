// Values of Arrow's arrays as JSON, as Python's json.dumps(..., ensure_ascii=False) writes what
// pyarrow's to_pylist() gives; digits of numbers may be fewer (1e+05).
#pragma once
#include <arrow/type_fwd.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace neox {

// Bytes that are not UTF-8 are written as they are.
void append_json_string(std::string_view text, std::string& json);

// The value in a row of an array. Numbers, strings, bytes (as strings), lists, structures and maps
// (as lists of pairs), decimals (as numbers); dates and the like become strings as Arrow writes
// them.
void append_json(const arrow::Array& array, int64_t row, std::string& json);

}  // namespace neox
