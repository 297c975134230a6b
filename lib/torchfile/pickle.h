// A reader of Python's pickles, protocols 2 to 5. It builds values and calls nothing: classes and
// functions are names. Those whose meaning is known here (builder.h) become tensors, dicts and the
// like; any other becomes an object with its name, arguments and state. What it allocates is
// bounded by a multiple of the pickle's size.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "torchfile/document.h"

namespace neox::torchfile {

// Where tensors' bytes are.
struct Records {
  // The bytes of the record data/<key>; throws where there is none.
  std::function<std::span<const std::byte>(std::string_view key)> data;
  bool swapped = false;  // numbers in them are in the order of a big-endian machine
};

// Throws (74) with `file` and the byte of the pickle. The values refer to the bytes.
Value read_pickle(std::span<const std::byte> bytes, const std::string& file, const Records& records,
                  Document& document);

}  // namespace neox::torchfile
