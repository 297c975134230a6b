// What the Parquet plugin (libneox_parquet.so) gives: the only part of the project that links
// Apache Arrow. It is loaded when a Parquet file is met, so that nothing else needs that library.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "prepare/byte_source.h"

namespace neox {

// Of a file that had so many bytes when it was found, the groups of rows that begin in bytes begin
// .. end. Slices that follow each other to the file's end have all its rows, in their order.
struct ParquetSlice {
  std::string path;
  int64_t bytes = 0, begin = 0, end = 0;
};

struct ParquetPlugin {
  const char* build;  // must equal kVersion of the program
  // Its rows as JSON lines with these columns alone. Up to so many threads decode groups of rows.
  // Throws Error (74) for damaged and changed files and missing columns.
  std::unique_ptr<ByteSource> (*open)(const ParquetSlice& slice,
                                      std::span<const std::string> columns, int threads);
  // The number of rows of the file before it. Throws Error (74).
  int64_t (*rows_before)(const ParquetSlice& slice);
};

// The symbol of the plugin.
using ParquetPluginEntry = const ParquetPlugin* (*)();
inline constexpr const char* kParquetPluginEntry = "neox_parquet_plugin";

// Loads the plugin once, from ../lib/neox beside the program. Throws (74) naming the file that
// needs it and what is missing.
const ParquetPlugin& parquet_plugin(const std::string& for_file);

}  // namespace neox
