// Parquet and Arrow files for tests, by the program parquet_writer, whose head lists what a form
// may say.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "child.h"

namespace neox::testing {

inline constexpr const char* kParquetWriter = NEOX_BUILD_DIR "/tests/parquet_writer";

// Whether this build has Arrow.
inline bool has_parquet() { return std::filesystem::exists(kParquetWriter); }

// The bytes of a file with the rows of JSON lines.
inline std::string parquet_of(const std::string& lines, const std::vector<std::string>& form = {}) {
  std::vector<std::string> command = {kParquetWriter};
  command.insert(command.end(), form.begin(), form.end());
  Ended ended = Child(command, {.input = lines}).end();
  check(ended.code == 0, "parquet_writer ended with ", ended.code, ": ", ended.err);
  return ended.out;
}

}  // namespace neox::testing
