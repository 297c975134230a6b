// What the Arrow plugin (libneox_arrow.so) gives: the rows of Parquet and Arrow files. It is the
// only part of the project that links Apache Arrow, and is loaded when such a file is met, so that
// nothing else needs that library.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "prepare/byte_source.h"

namespace neox {

// Of a file that had so many bytes when it was found, the groups of rows (of Arrow: record batches)
// that begin in bytes begin .. end. Slices that follow each other to the file's end have all its
// rows, in their order.
struct RowSlice {
  std::string path;
  int64_t bytes = 0, begin = 0, end = 0;
};

struct ArrowPlugin {
  const char* interface;  // must equal the program's NEOX_ARROW_INTERFACE
  // Its rows as JSON lines with these columns alone. Up to so many threads decode groups of rows.
  // Throws Error (74) for damaged and changed files and missing columns.
  std::unique_ptr<ByteSource> (*open)(const RowSlice& slice, std::span<const std::string> columns,
                                      int threads);
  // The number of rows of the file before it. Throws Error (74).
  int64_t (*rows_before)(const RowSlice& slice);
};

// The symbol of the plugin.
inline constexpr const char* kArrowPluginEntry = "neox_arrow_plugin";

// Loads the plugin once, from ../lib/neox beside the program. Throws (74) naming the file that
// needs it and what is missing.
const ArrowPlugin& arrow_plugin(const std::string& for_file);

}  // namespace neox
