// Datasets as other tools write them, damaged ones too, and the commands of neox-data on them.
#pragma once
#include <sstream>
#include <string>
#include <vector>

#include "data_files.h"
#include "dataset/commands.h"

namespace neox::testing {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The parts of an .idx; what is wrong in them is written as it is.
struct Index {
  std::vector<int32_t> lengths;
  std::vector<int64_t> documents = {};  // none: each sequence is one
  std::vector<int64_t> positions = {};  // none: the sums of the lengths
  TokenType type = TokenType::kUint16;

  std::string bytes() const {
    std::vector<int64_t> starts = positions, ends = documents;
    int64_t sum = 0, n = 0;
    for (int32_t length : lengths) {
      if (positions.empty()) starts.push_back(sum * token_bytes(type));
      sum += length;
    }
    if (documents.empty())
      for (ends.push_back(0); n < std::ssize(lengths);) ends.push_back(++n);
    std::string text("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17);
    text += static_cast<char>(type);
    text += bytes_of(std::vector<int64_t>{std::ssize(lengths), std::ssize(ends)});
    return text + bytes_of(lengths) + bytes_of(starts) + bytes_of(ends);
  }
};

// Writes a dataset of uint16 tokens with that index, and returns its prefix.
inline std::string put(const Directory& dir, const std::string& name, const Index& index,
                       const std::vector<uint16_t>& tokens) {
  dir.put(name + ".bin", bytes_of(tokens));
  dir.put(name + ".idx", index.bytes());
  return dir / name;
}

// "0: <output>", or "64: <message>".
inline std::string neox_data(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  int exit = 0;
  std::string error = error_of([&] { exit = run_data_command(arguments, out); });
  return error.empty() ? concat(exit, ": ", out.str()) : error;
}

inline std::pair<std::string, std::string> files(const std::string& prefix) {
  return {read_file(prefix + ".bin"), read_file(prefix + ".idx")};
}

}  // namespace neox::testing
